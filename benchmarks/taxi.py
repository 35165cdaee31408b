"""Compares stock TFX and Scopeline on the same taxi data: seconds per component, and ratios.

Both train for the same number of steps with the same batch size. The networks have similar sizes;
the stock network comes from TFX's template. The number of evaluation batches of the stock pipeline
is a tenth of its training batches, and it reports the accuracy. Scopeline evaluates the whole eval
split after every epoch, and also reports the area under the curve.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.costs.watching import TOTAL, Cost, run_watched  # noqa: E402
from benchmarks.stock_module import BATCH_SIZE  # noqa: E402
from components.example_gen.builtin import BUILTIN_DATA  # noqa: E402

SIZES = {"small": (1, 3), "large": (20, 1)}
"""The number of repetitions of the rows, and the number of epochs, by size."""
SHIPPED_ROWS = 15_002
TRAIN_SHARE = 2 / 3
"""The share of the train split in stock ExampleGen; Scopeline's settings use the same share."""
STOCK_COMPONENTS = {
    "ExampleGen": "CsvExampleGen",
    **{
        name: name
        for name in (
            "StatisticsGen",
            "SchemaGen",
            "ExampleValidator",
            "Transform",
            "Trainer",
            "Evaluator",
            "Pusher",
        )
    },
}


@dataclass(frozen=True)
class TaxiData:
    """A folder with a CSV file, and its number of rows."""

    folder: Path
    rows: int


def write_data(folder: Path, repeat: int) -> TaxiData:
    """Writes the shipped taxi rows repeatedly, with one header."""
    header, *rows = BUILTIN_DATA["taxi"].locate(folder).read_text().splitlines(keepends=True)
    (folder / "taxi.csv").write_text(header + "".join(rows) * repeat)
    return TaxiData(folder, len(rows) * repeat)


def run_stock(data: TaxiData, root: Path, epochs: int) -> dict[str, float]:
    """Returns the seconds per component of the stock pipeline."""
    steps = int(data.rows * TRAIN_SHARE * epochs / BATCH_SIZE)
    command = [
        sys.executable,
        "-m",
        "benchmarks.stock_taxi",
        str(data.folder),
        str(root),
        str(steps),
    ]
    output, seconds = _run_timed(command)
    seconds_by_name = json.loads(output.strip().splitlines()[-1])
    return {ours: seconds_by_name[stock] for ours, stock in STOCK_COMPONENTS.items()} | {
        TOTAL: seconds
    }


def run_ours(data: TaxiData, root: Path, epochs: int) -> dict[str, Cost]:
    """Returns the cost of each of Scopeline's components."""
    settings = [
        f"data.path={data.folder / 'taxi.csv'}",
        "data.splits={train: 2, eval: 1}",
        f"train.epochs={epochs}",
        f"train.batch_size={BATCH_SIZE}",
        "evaluate.thresholds={accuracy: {min: 0.1}}",
    ]
    return run_watched("configs/taxi.yaml", root, settings)


def _run_timed(command: list[str]) -> tuple[str, float]:
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout, time.monotonic() - began


@contextmanager
def _data(repeat: int) -> Iterator[tuple[TaxiData, Path]]:
    """Yields the data and a folder for pipelines, and deletes both afterwards."""
    with tempfile.TemporaryDirectory(prefix="scopeline-bench-") as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir()
        yield write_data(folder, repeat), Path(scratch)


def compare(repeat: int, epochs: int) -> Table:
    """Runs both pipelines on repeated rows, and returns a table of seconds and ratios."""
    with _data(repeat) as (data, scratch):
        stock = run_stock(data, scratch / "stock", epochs)
        ours = run_ours(data, scratch / "ours", epochs)
    table = _table(data, epochs, "stock, s", "Scopeline, s", "stock / Scopeline")
    for name, seconds in stock.items():
        ratio = f"{seconds / ours[name].seconds:.1f}x" if seconds > 0.1 else "-"
        table.add_row(name, f"{seconds:.1f}", f"{ours[name].seconds:.1f}", ratio)
    return table


def measure(repeat: int, epochs: int) -> Table:
    """Runs only Scopeline on repeated rows, and returns a table of costs."""
    with _data(repeat) as (data, scratch):
        ours = run_ours(data, scratch / "ours", epochs)
    table = _table(data, epochs, "Scopeline, s", "CPU, s", "largest process, MiB")
    for name, cost in ours.items():
        table.add_row(name, *cost.cells)
    return table


def _table(data: TaxiData, epochs: int, *columns: str) -> Table:
    table = Table(title=f"{data.rows:,} rows, {epochs} epoch(s)", title_justify="left")
    table.add_column("component")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def main() -> None:
    """Runs the sizes that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sizes", nargs="*", choices=[*SIZES, []], help="the sizes to run; default: all"
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", help="approximate numbers of rows to run for one epoch"
    )
    parser.add_argument(
        "--ours-only", action="store_true", help="measure only Scopeline, with its memory"
    )
    options = parser.parse_args()
    sizes = [SIZES[size] for size in options.sizes or SIZES]
    if options.rows:
        sizes = [(max(round(rows / SHIPPED_ROWS), 1), 1) for rows in options.rows]
    for size in sizes:
        Console(width=80).print((measure if options.ours_only else compare)(*size))


if __name__ == "__main__":
    main()
