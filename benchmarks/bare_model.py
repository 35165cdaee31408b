"""A pushed model called in a loop, without any server: rows a second by rows a call."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from pipeline.serving.server.columns import from_rows, to_arrays

_WARM_CALLS = 20


def main() -> None:
    """Prints rows a second, and seconds a call, by rows a call, as JSON."""
    from pipeline.serving.model import load_model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", type=Path)
    parser.add_argument("body", type=Path, help="a request for :predict")
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    model = load_model(given.version)
    instances = json.loads(given.body.read_text())["instances"]
    found = {}
    for count in given.rows:
        rows = (instances * (count // len(instances) + 1))[:count]
        columns = to_arrays(from_rows(rows, model.interface), model.interface)
        for _ in range(_WARM_CALLS):
            model.predict(columns)
        calls, began = 0, time.perf_counter()
        while (taken := time.perf_counter() - began) < given.seconds:
            model.predict(columns)
            calls += 1
        found[count] = {"rows_a_second": calls * count / taken, "seconds_a_call": taken / calls}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
