"""What a variant takes: `python -m trainer_module.variants.measuring FOLDER SAMPLE` prints JSON.

In that process there is numpy, the variant's runtime, and nothing else to count.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainer_module.variants.running import Arrays, open_variant

BATCHES = (1, 32)
WARM_UP_CALLS = 3
FEWEST_CALLS, MOST_SECONDS = 20, 0.5
"""A batch is asked for until both are reached: medians of fewer calls move."""

Ask = Callable[[Mapping[str, np.ndarray]], object]


def measure(ask: Ask, sample: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The time of a call by batch, `batch_1` and `batch_32`, and what follows from that.

    Args:
      ask: answers transformed features, [batch, ...] each.
      sample: such features of some examples, which are repeated where a batch needs more.

    Returns:
      `p50_ms` and `p99_ms` of each batch, and the `rows_per_second` of the largest.
    """
    found: dict[str, Any] = {}
    for batch in BATCHES:
        times = _time(ask, _batch_of(sample, batch))
        median, slow = np.percentile(times, [50, 99])
        found[f"batch_{batch}"] = {"p50_ms": median * 1e3, "p99_ms": slow * 1e3}
        found["rows_per_second"] = batch / median
    return found


def _batch_of(sample: Mapping[str, np.ndarray], rows: int) -> Arrays:
    return {name: np.resize(values, (rows, *values.shape[1:])) for name, values in sample.items()}


def _time(ask: Ask, batch: Mapping[str, np.ndarray]) -> list[float]:
    """The seconds of each call."""
    for _ in range(WARM_UP_CALLS):
        ask(batch)
    times: list[float] = []
    end = time.perf_counter() + MOST_SECONDS
    while len(times) < FEWEST_CALLS or time.perf_counter() < end:
        began = time.perf_counter()
        ask(batch)
        times.append(time.perf_counter() - began)
    return times


def main(folder: Path, sample: Path) -> None:
    """Prints the figures of a variant, and the most memory that its process has taken.

    Args:
      folder: of the variant.
      sample: a file of `np.savez`, an array per feature in the order of the variant's inputs.
    """
    variant = open_variant(folder)
    with np.load(sample, allow_pickle=False) as stored:
        features = {t.name: stored[f"{i}"] for i, t in enumerate(variant.variant.inputs)}
    figures = measure(variant.predict, features)
    figures["peak_memory_bytes"] = _peak_memory()
    sys.stdout.write(json.dumps(figures))


def _peak_memory() -> int:
    """Of this process alone: `getrusage` has that of the process which has started it, too."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
