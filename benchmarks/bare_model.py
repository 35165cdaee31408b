"""A pushed model called in a loop, without a server: rows a second by batch size.

The model is called by the signature of `tf.saved_model.load`, and in a session as in `serve`.
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
    parser.add_argument("body", type=Path, help="a request for :predict")
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--features", type=Path, help="takes a request for a variant alone")
    given = parser.parse_args()
    import_tensorflow()
    import tensorflow as tf

    model, loaded = load_model(given.version), tf.saved_model.load(str(given.version))
    instances = json.loads(given.body.read_text())["instances"]
    found = {}

    def call(signature: str, columns: dict[str, Any]) -> dict[str, Any]:
        tensors = {name: tf.constant(values) for name, values in columns.items()}
        return {n: t.numpy() for n, t in loaded.signatures[signature](**tensors).items()}

    for count in given.rows:
        rows = (instances * (count // len(instances) + 1))[:count]
        columns = to_arrays(from_rows(rows, model.interface), model.interface)
        found[count] = {
            "tensorflow": _measure(lambda: call("serving_raw", columns), count, given.seconds),  # noqa: B023
            "session": _measure(lambda: model.predict(columns), count, given.seconds),  # noqa: B023
        }
    if given.features:
        columns = to_arrays(from_rows(instances, model.interface), model.interface)
        lists = {n: v.tolist() for n, v in call("serving_raw_transform", columns).items()}
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        given.features.write_text(json.dumps({"instances": rows}))
    print(json.dumps(found))


def _measure(call: Callable[[], object], rows: int, seconds: float) -> dict[str, float]:
    for _ in range(_WARM_CALLS):
        call()
    calls, began, used = 0, time.perf_counter(), time.process_time()
    while (taken := time.perf_counter() - began) < seconds:
        call()
        calls += 1
    used = time.process_time() - used
    return {"rows_a_second": calls * rows / taken, "rows_a_cpu_second": calls * rows / used}


if __name__ == "__main__":
    main()
