"""Scopeline's data components in one process and in several: seconds of each, and ratios.

The rows are those that are shipped, repeated in as many files as processes could share.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.costs.watching import TOTAL, run_watched
from components.example_gen.builtin import BUILTIN_DATA

FILES = 8
SHARED = ("ExampleGen", "StatisticsGen", "Transform", "Evaluator")
"""The components whose work Beam shares."""


def write_files(folder: Path, rows: int) -> int:
    """Writes about so many rows; returns how many."""
    header, *shipped = BUILTIN_DATA["taxi"].locate(folder).read_text().splitlines(keepends=True)
    repeat = max(1, rows // len(shipped) // FILES)
    for file in range(FILES):
        (folder / f"taxi-{file}.csv").write_text(header + "".join(shipped) * repeat)
    return len(shipped) * repeat * FILES


def compare(rows: int, workers: int) -> Table:
    """Runs both and tabulates."""
    with tempfile.TemporaryDirectory(prefix="scopeline-workers-") as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir()
        written = write_files(folder, rows)
        settings = [
            f"data.path={folder / 'taxi-*.csv'}",
            "train.epochs=1",
            "train.batch_size=4096",
            "evaluate.thresholds={accuracy: {min: 0.1}}",
        ]
        one, several = (
            run_watched(
                "configs/taxi.yaml", Path(scratch, f"by {n}"), [*settings, f"beam.workers={n}"]
            )
            for n in (1, workers)
        )
    table = Table(title=f"{written:,} rows in {FILES} files", title_justify="left")
    table.add_column("component")
    columns = ("1 process, s", "of CPU, s", f"{workers} processes, s", "of CPU, s", "ratio")
    for column in columns:
        table.add_column(column, justify="right")
    for name in (*SHARED, TOTAL):
        ratio = f"{one[name].seconds / several[name].seconds:.2f}x"
        table.add_row(name, *one[name].cells[:2], *several[name].cells[:2], ratio)
    return table


def main() -> None:
    """Runs the comparison that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_400)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    Console(width=80).print(compare(arguments.rows, arguments.workers))


if __name__ == "__main__":
    main()
