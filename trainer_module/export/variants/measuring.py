"""Measures the latency and memory of a variant in a process that loads only the variant's runtime.

Run as a module, it prints a line of JSON: for batches of 1 and of 32 rows, the median and the 99th
percentile of the latency in milliseconds and the rows per second; and the peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainer_module.errors import DataError
from trainer_module.export.variants.running import Arrays, open_variant

BATCHES = (1, 32)
MAX_CALLS, MAX_SECONDS = 2000, 2.0
"""The limits of the measurement of a batch size."""
MIN_CALLS = 20
"""The minimum number of calls, even if they take longer than `MAX_SECONDS`."""
WARM_UP_CALLS = 5
"""The number of calls before the measurement."""


def time_calls(predict: Callable[[Arrays], object], features: Arrays) -> dict[str, float]:
    """Returns the latencies of a batch size, by names that end in the number of rows."""
    rows = len(next(iter(features.values())))
    for _ in range(WARM_UP_CALLS):
        predict(features)
    seconds: list[float] = []
    end = time.perf_counter() + MAX_SECONDS
    while len(seconds) < MIN_CALLS or (len(seconds) < MAX_CALLS and time.perf_counter() < end):
        started = time.perf_counter()
        predict(features)
        seconds.append(time.perf_counter() - started)
    median, slowest = np.percentile(seconds, [50, 99])
    return {
        f"p50_ms_batch_{rows}": 1000 * float(median),
        f"p99_ms_batch_{rows}": 1000 * float(slowest),
        f"rows_per_second_batch_{rows}": rows / float(median),
    }


def measure(
    predict: Callable[[Arrays], object], features: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Returns the latencies and the peak memory of a model in this process.

    Args:
      predict: the function that calls the model.
      features: some rows, which are repeated if a batch has more rows.
    """
    figures: dict[str, Any] = {}
    for batch in BATCHES:
        figures |= time_calls(
            predict, {n: np.resize(v, (batch, *v.shape[1:])) for n, v in features.items()}
        )
    return {**figures, "peak_memory_bytes": _peak_memory()}


def _peak_memory() -> int:
    """Returns the peak memory of this process in bytes.

    `getrusage` is not used, because it includes the memory of the parent before exec.
    """
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(kilobytes)


def measure_in_process(
    folder: Path,
    sample: Path,
    threads: int = 1,
    providers: tuple[str, ...] = (),
    timeout: float = 600,
) -> dict[str, Any]:
    """Returns the latencies and the peak memory of a variant, measured in a new process.

    Args:
      folder: the folder of the variant.
      sample: the `.npz` file with transformed features that `save_sample` wrote.
      threads: the number of threads, as in `open_variant`.
      providers: ONNX Runtime's execution providers, as in `open_variant`.
      timeout: the timeout of the process in seconds.

    Raises:
      DataError: the variant cannot be loaded or run, or the timeout is exceeded.
    """
    command = [sys.executable, "-P", "-m", __name__, str(folder), str(sample)]
    command += ["--threads", str(threads), *(f"--provider={name}" for name in providers)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"{folder} was not measured within {timeout:.0f} seconds.") from None
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    raise DataError(f"{folder} cannot be measured: {lines[-1]}")


def save_sample(features: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes transformed features for other processes; feature names may have any characters."""
    np.savez(path, np.array(json.dumps(list(features))), *features.values())


def load_sample(path: Path) -> Arrays:
    """Returns the transformed features that `save_sample` has written."""
    with np.load(path, allow_pickle=False) as stored:
        names = json.loads(str(stored["arr_0"]))
        return {name: stored[f"arr_{i}"] for i, name in enumerate(names, 1)}


def main() -> int:
    """Measures a variant; returns 2 and prints the error if the variant cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the variant")
    parser.add_argument("sample", type=Path, help="an .npz file with transformed features")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--provider", action="append", default=[], help="an execution provider of ONNX Runtime"
    )
    options = parser.parse_args()
    try:
        opened = open_variant(options.folder, options.threads, tuple(options.provider))
        figures = measure(opened.predict, load_sample(options.sample))
    except DataError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    figures["tensorflow_was_imported"] = "tensorflow" in sys.modules
    sys.stdout.write(f"{json.dumps(figures)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
