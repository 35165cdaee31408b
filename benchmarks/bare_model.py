"""Measures a pushed model in a loop without a server: rows per second by batch size.

The script calls the model in two ways: by its signature, after `tf.saved_model.load`, and in a
session, like `serve`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from components.serving.server.protocols.values import from_rows, to_arrays

_WARM_CALLS = 20


def main() -> None:
    """Prints rows per second and per CPU second by batch size, as JSON."""
    from components.serving.model import import_tensorflow, load_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", type=Path)
    parser.add_argument("body", type=Path, help="the body of a request for :predict")
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--features", type=Path, help="the file to write: a request for a variant")
    options = parser.parse_args()
    import_tensorflow()
    import tensorflow as tf

    model, loaded = load_model(options.version), tf.saved_model.load(str(options.version))
    instances = json.loads(options.body.read_text())["instances"]
    results = {}

    def call(signature: str, columns: dict[str, Any]) -> dict[str, Any]:
        tensors = {name: tf.constant(values) for name, values in columns.items()}
        return {n: t.numpy() for n, t in loaded.signatures[signature](**tensors).items()}

    for count in options.rows:
        rows = (instances * (count // len(instances) + 1))[:count]
        columns = to_arrays(from_rows(rows, model.interface), model.interface)
        results[count] = {
            "tensorflow": _measure(lambda: call("serving_raw", columns), count, options.seconds),  # noqa: B023
            "session": _measure(lambda: model.predict(columns), count, options.seconds),  # noqa: B023
        }
    if options.features:
        columns = to_arrays(from_rows(instances, model.interface), model.interface)
        lists = {n: v.tolist() for n, v in call("serving_raw_transform", columns).items()}
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        options.features.write_text(json.dumps({"instances": rows}))
    print(json.dumps(results))


def _measure(call: Callable[[], object], rows: int, seconds: float) -> dict[str, float]:
    for _ in range(_WARM_CALLS):
        call()
    calls, began, cpu_seconds = 0, time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - began) < seconds:
        call()
        calls += 1
    cpu_seconds = time.process_time() - cpu_seconds
    return {
        "rows_a_second": calls * rows / elapsed,
        "rows_a_cpu_second": calls * rows / cpu_seconds,
    }


if __name__ == "__main__":
    main()
