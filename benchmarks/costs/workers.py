"""Compares the data components in one process and in several processes: seconds and ratios.

The shipped rows are repeated in several files, so that the processes can share them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.costs.watching import TOTAL, run_watched
from benchmarks.taxi import SHIPPED_ROWS, write_data
from pipeline.component_ids import PARALLEL
from trainer_module.machine import count_cores

FILES = 8


def compare(rows: int, workers: int) -> Table:
    """Runs the pipeline with one process and with several, and returns a table of the costs."""
    with tempfile.TemporaryDirectory(prefix="scopeline-workers-") as scratch:
        folder = Path(scratch) / "data"
        written = 0
        for file in range(FILES):
            (folder / str(file)).mkdir(parents=True)
            written += write_data(folder / str(file), max(1, rows // SHIPPED_ROWS // FILES)).rows
        settings = [
            f"data.path={folder / '*/taxi.csv'}",
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
    columns = ("1 process, s", "its CPU, s", f"{workers} processes, s", "their CPU, s", "ratio")
    for column in columns:
        table.add_column(column, justify="right")
    for name in (*PARALLEL, TOTAL):
        ratio = f"{one[name].seconds / several[name].seconds:.2f}x"
        table.add_row(name, *one[name].cells[:2], *several[name].cells[:2], ratio)
    return table


def main() -> None:
    """Runs the comparison that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_400)
    parser.add_argument("--workers", type=int, default=count_cores())
    arguments = parser.parse_args()
    Console(width=80).print(compare(arguments.rows, arguments.workers))


if __name__ == "__main__":
    main()
