"""The number of rows that a component has read.

Each process of a Beam pipeline counts in a line of its own of an array in a temporary file. An
error of this file stops the counting, and not the pipeline.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from trainer_module.runtime import ABOUT, report_step

_PERIOD = 0.5
"""The seconds between two reports."""
_counts = np.zeros((1, 2), np.int64)
"""The rows read, and the rows that will be read in addition to the known total, by process."""
_line = 0
shared_path = ""
"""The path of the shared array, or an empty string if no pipeline runs in this process."""


def count_rows(rows: int) -> None:
    """Counts rows that this process has read. Call the function once for each batch."""
    _counts[_line, 0] += rows


def expect_rows(rows: int) -> None:
    """Announces how many more rows all processes of the pipeline will read."""
    _counts[_line, 1] += _counts[:, 0].sum() + rows


def share_counts(path: str, line: int) -> None:
    """Makes this process count in a line of the array at a path.

    If the pipeline has ended in the meantime, nothing changes.
    """
    global _counts, _line
    with suppress(OSError, ValueError):
        _counts = np.memmap(path, np.int64, "r+").reshape(-1, 2)
        _line = line % len(_counts)


@contextmanager
def report_rows(total: int, workers: int) -> Iterator[None]:
    """Reports the rows that a pipeline has read, while the `with` block runs the pipeline.

    Args:
      total: the rows that the pipeline will read, or 0 if unknown.
      workers: the number of processes in addition to this process.
    """
    global shared_path
    path = shared_path = _create_counts(1 + workers)
    has_ended = threading.Event()
    thread = threading.Thread(target=_report, args=(_counts, total, has_ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        with suppress(OSError):
            Path(path).unlink()
        shared_path = ""


def _create_counts(processes: int) -> str:
    """Creates the array, and returns its path, which is empty if no file can be created. If the
    array cannot be written, only this process counts.
    """
    global _counts, _line
    _counts, _line = np.zeros((processes, 2), np.int64), 0
    path = ""
    with suppress(OSError):
        descriptor, path = tempfile.mkstemp(prefix="rows-")
        # A write to a mapped file without allocated space would end the process.
        with open(descriptor, "wb") as file:
            file.write(_counts.tobytes())
    share_counts(path, 0)
    return path


def _report(counts: np.ndarray, total: int, has_ended: threading.Event) -> None:
    shown, is_last = (0, 0), False
    while not is_last:
        is_last = has_ended.wait(_PERIOD)
        rows, announced = map(int, counts.sum(axis=0))
        if shown != (shown := (rows, announced)):
            _show(rows, total or announced)


def report_batches(batches: Iterable[np.ndarray], total: int) -> Iterator[np.ndarray]:
    """Yields batches of rows that this process reads, and reports how many were read.

    Args:
      batches: the batches, [rows] each.
      total: the number of all rows, or 0 if unknown.
    """
    rows, reported = 0, time.monotonic()
    for batch in batches:
        yield batch
        rows += len(batch)
        if time.monotonic() - reported >= _PERIOD:
            reported = time.monotonic()
            _show(rows, total)


def _show(rows: int, total: int) -> None:
    with suppress(Exception):  # The output may be closed; the rows are read nevertheless.
        if total:
            text = f"{rows:,} of {total:,} rows read"
            report_step(text, min(rows, total), total, left=ABOUT, is_logged=False)
        else:
            report_step(f"{rows:,} rows read", is_logged=False)
