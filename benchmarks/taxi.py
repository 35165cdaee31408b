"""Stock TFX and Scopeline on the same taxi data, in turn: seconds per component, and ratios.

Both train for as many steps of as many rows. The networks are about as large, but not the same: the
stock one is the template's. It is evaluated on a tenth as many batches as it is trained on, and
reports the accuracy; ours is evaluated on the whole eval split after every epoch, and reports the
area under the curve as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.stock_module import BATCH_SIZE  # noqa: E402
from components.example_gen.builtin import BUILTIN_DATA  # noqa: E402

SIZES = {"small": (1, 3), "large": (20, 1)}
"""How often the rows are repeated, and the epochs to train."""
TRAIN_SHARE = 2 / 3
"""Stock ExampleGen splits 2 to 1; ours is told to do the same."""
STEPS = {
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
TOTAL = "whole process"


@dataclass(frozen=True)
class Data:
    """The CSV and how many rows it has."""

    folder: Path
    rows: int


def write_data(folder: Path, repeat: int) -> Data:
    """Writes the shipped taxi rows a number of times below one header."""
    header, *rows = BUILTIN_DATA["taxi"].locate(folder).read_text().splitlines(keepends=True)
    (folder / "taxi.csv").write_text(header + "".join(rows) * repeat)
    return Data(folder, len(rows) * repeat)


def run_stock(data: Data, root: Path, epochs: int) -> dict[str, float]:
    """Seconds per component of the stock pipeline."""
    steps = int(data.rows * TRAIN_SHARE * epochs / BATCH_SIZE)
    command = [
        sys.executable,
        "-m",
        "benchmarks.stock_taxi",
        str(data.folder),
        str(root),
        str(steps),
    ]
    output, seconds = _timed(command)
    found = json.loads(output.strip().splitlines()[-1])
    return {ours: found[stock] for ours, stock in STEPS.items()} | {TOTAL: seconds}


def run_ours(data: Data, root: Path, epochs: int) -> dict[str, float]:
    """Seconds per component of ours, from its summary."""
    settings = [
        f"data.path={data.folder / 'taxi.csv'}",
        "data.splits={train: 2, eval: 1}",
        f"train.epochs={epochs}",
        f"train.batch_size={BATCH_SIZE}",
        "evaluate.thresholds={accuracy: {min: 0.1}}",
    ]
    command = [sys.executable, "local_runner.py", "run", "--config", "configs/taxi.yaml"]
    command += ["--output", str(root)]
    for setting in settings:
        command += ["--set", setting]
    _, seconds = _timed(command)
    (summary,) = (root / "taxi" / "runs").glob("*/summary.json")
    components = json.loads(summary.read_text())["components"]
    return {c["name"]: c["seconds"] for c in components} | {TOTAL: seconds}


def _timed(command: list[str]) -> tuple[str, float]:
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout, time.monotonic() - began


def compare(size: str) -> Table:
    """Runs both on one size of data and tabulates."""
    repeat, epochs = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="scopeline-bench-") as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir()
        data = write_data(folder, repeat)
        stock = run_stock(data, Path(scratch) / "stock", epochs)
        ours = run_ours(data, Path(scratch) / "ours", epochs)
    table = Table(title=f"{data.rows:,} rows, {epochs} epoch(s)", title_justify="left")
    table.add_column("component")
    for column in ("stock, s", "Scopeline, s", "stock / Scopeline"):
        table.add_column(column, justify="right")
    for name, seconds in stock.items():
        ratio = f"{seconds / ours[name]:.1f}x" if seconds > 0.1 else "-"
        table.add_row(name, f"{seconds:.1f}", f"{ours[name]:.1f}", ratio)
    return table


def main() -> None:
    """Runs the sizes that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="default: all")
    for size in parser.parse_args().sizes or SIZES:
        Console(width=80).print(compare(size))


if __name__ == "__main__":
    main()
