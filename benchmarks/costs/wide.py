"""Measures pipelines on wide tables: seconds and memory per component, by number of columns.

Half of the columns are numbers, half are categories, and the label depends on a few of them. The
config describes none of the columns.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.costs.watching import Cost, run_watched

CONFIG = "name: wide\ndata: {{format: {format}, path: {path}, label: label}}\ntask: binary\n"
CATEGORIES = 12


def write_table(path: Path, rows: int, columns: int) -> None:
    """Writes a table in the format of its suffix, with the label in an additional column."""
    random = np.random.default_rng(columns)
    numbers = random.normal(size=(rows, (columns + 1) // 2)).round(3)
    codes = random.integers(0, CATEGORIES, (rows, columns // 2))
    chance = 1 / (1 + np.exp(-numbers[:, 0] - (codes[:, 0] % 2)))
    data = {f"number_{index}": values for index, values in enumerate(numbers.T)}
    names = np.array([f"kind {code}" for code in range(CATEGORIES)])
    data |= {f"category_{index}": names[values] for index, values in enumerate(codes.T)}
    table = pd.DataFrame(data | {"label": (random.random(rows) < chance).astype(int)})
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)


def run(rows: int, columns: int, data_format: str) -> dict[str, Cost]:
    """Returns the cost of each component."""
    with tempfile.TemporaryDirectory(prefix="scopeline-bench-") as scratch:
        path, config = Path(scratch, f"wide.{data_format}"), Path(scratch, "wide.yaml")
        write_table(path, rows, columns)
        config.write_text(CONFIG.format(format=data_format, path=path))
        return run_watched(config, Path(scratch) / "output", ["train.epochs=2"])


def main() -> None:
    """Runs a pipeline for each number of columns in the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, nargs="+", default=[50, 500, 5000])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv")
    options = parser.parse_args()
    costs = [run(options.rows, columns, options.format) for columns in options.columns]
    table = Table(title=f"{options.rows:,} rows, {options.format}", title_justify="left")
    table.add_column("component")
    for columns in options.columns:
        for column in (f"{columns:,} columns: s", "CPU, s", "MiB"):
            table.add_column(column, justify="right")
    for name in costs[0]:
        table.add_row(name, *(cell for run_costs in costs for cell in run_costs[name].cells))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
