"""Measures how often a complete pipeline run pushes a model of a table of pure noise.

The columns of each table are independent of the label. The rows are independent (`plain`, `tuned`),
correlated within groups (`grouped`) or in time (`ordered`). `local_runner.py` runs the whole
pipeline with its defaults. A pushed model is a false positive.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from scipy.stats import binomtest

import local_runner
from pipeline.exit_codes import EXIT_NOT_BLESSED, EXIT_PUSHED, EXIT_UNUSABLE
from trainer_module.machine import count_cores

MAX_PUSHED = 0.07
"""The maximum accepted share of tables of a kind whose model is pushed.

The share is 5 % plus the random error of 100 tables."""
TASKS = ("binary", "multiclass", "regression")
PRELOADED = ["tensorflow_model_analysis", "tensorflow_transform", "tf_keras", "tfx.components"]
"""The modules that the fork server of the runs imports once."""


@dataclass(frozen=True)
class Table:
    """A table of noise: all columns are independent of `label`."""

    task: str
    columns: dict[str, np.ndarray]
    """The columns in the order of the file, [rows] each."""

    def write(self, path: Path) -> None:
        """Writes the table as CSV with a header."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(zip(*self.columns.values(), strict=True))


Draw = Callable[[], np.ndarray]
"""A function that returns [rows] random numbers with mean 0 and standard deviation 1."""


def make_table(kind: str, seed: int) -> Table:
    """Returns a random table that is determined by the arguments.

    Args:
      kind: one of `KINDS`.
      seed: the number of the table among the tables of its kind.
    """
    random = np.random.default_rng([list(KINDS).index(kind), seed])
    rows = int(np.exp(random.uniform(np.log(150), np.log(1500))))
    task = TASKS[seed % len(TASKS)]
    keys, draw = KINDS[kind].rows(rows, random)
    features = {f"x{n}": _column(draw(), random) for n in range(random.integers(2, 11))}
    return Table(task, keys | features | {"label": _label(task, draw(), random)})


def _independent(rows: int, random: np.random.Generator) -> tuple[dict[str, np.ndarray], Draw]:
    return {}, lambda: random.normal(size=rows)


def _grouped(rows: int, random: np.random.Generator) -> tuple[dict[str, np.ndarray], Draw]:
    """Returns a column of 20 to 100 groups, and a function whose values correlate within groups."""
    group = random.integers(random.integers(20, 101), size=rows)
    share = random.uniform(0.5, 1)

    def draw() -> np.ndarray:
        group_values = random.normal(size=group.max() + 1)[group]
        row_values = random.normal(size=rows)
        return np.asarray(np.sqrt(share) * group_values + np.sqrt(1 - share) * row_values)

    return {"group": np.char.add("g", group.astype(str))}, draw


def _ordered(rows: int, random: np.random.Generator) -> tuple[dict[str, np.ndarray], Draw]:
    """Returns a column of days, and a function whose values have an autocorrelation of 0.3
    to 0.8.
    """
    correlation = random.uniform(0.3, 0.8)
    days = np.arange(np.datetime64("2021-01-01"), np.datetime64("2021-01-01") + rows)

    def draw() -> np.ndarray:
        steps = random.normal(size=rows) * np.sqrt(1 - correlation**2)
        steps[0] = random.normal()
        for row in range(1, rows):
            steps[row] += correlation * steps[row - 1]
        return steps

    return {"day": days}, draw


def _column(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns numbers, skewed numbers, integers or categories, computed from random values."""
    shape = random.integers(4)
    if shape == 0:
        return values.round(4)
    if shape == 1:
        return np.exp(values).round(4)
    if shape == 2:
        return np.asarray((values * 20).astype(int) + 50)
    return _to_classes(values, int(random.integers(2, 9)), random)


def _label(task: str, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if task == "regression":
        return (np.exp(values) if random.random() < 0.5 else values * 10 + 100).round(3)
    return _to_classes(values, 2 if task == "binary" else int(random.integers(3, 6)), random)


def _to_classes(values: np.ndarray, classes: int, random: np.random.Generator) -> np.ndarray:
    """Cuts values into classes of random shares, each at least a third of an equal share."""
    shares = 1 / 3 + 2 / 3 * random.dirichlet(np.ones(classes)) * classes
    bounds = np.quantile(values, np.cumsum(shares / shares.sum())[:-1])
    return np.asarray(np.array([f"c{n}" for n in range(classes)])[np.searchsorted(bounds, values)])


@dataclass(frozen=True)
class Kind:
    """The dependence between the rows of a table, and the settings that describe it."""

    rows: Callable[[int, np.random.Generator], tuple[dict[str, np.ndarray], Draw]]
    data: dict[str, Any]
    sections: dict[str, Any]


KINDS = {
    "plain": Kind(_independent, {}, {}),
    "grouped": Kind(_grouped, {"split_by": "group"}, {}),
    "ordered": Kind(_ordered, {"order_by": "day"}, {}),
    "tuned": Kind(_independent, {}, {"tune": {"trials": 6}}),
}


def run_table(kind: str, seed: int, folder: Path) -> int:
    """Runs the pipeline on a table in this process, which must be new.

    Args:
      kind: one of `KINDS`.
      seed: the number of the table among the tables of its kind.
      folder: the folder to create. It receives the table, the config, the output, and the log
        `run.txt`.

    Returns:
      The exit code of the run.
    """
    folder.mkdir(parents=True)
    table, options = make_table(kind, seed), KINDS[kind]
    table.write(folder / "table.csv")
    data = {"format": "csv", "path": "table.csv", "label": "label"} | options.data
    config = {"name": "noise", "data": data, "task": table.task} | options.sections
    (folder / "noise.yaml").write_text(yaml.safe_dump(config))
    os.chdir(folder)
    sys.argv = ["local_runner.py", "run", "--config", "noise.yaml"]
    text = os.open("run.txt", os.O_WRONLY | os.O_CREAT)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(text, stream.fileno())
    try:
        local_runner.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def run_tables(
    kinds: list[str], tables: int, folder: Path, jobs: int
) -> Iterator[tuple[str, int, int]]:
    """Runs tables of each kind; yields the kind, the seed and the exit code of each run."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
        runs = {
            pool.submit(run_table, kind, seed, folder / f"{kind}-{seed}"): (kind, seed)
            for seed in range(tables)
            for kind in kinds
        }
        for run in as_completed(runs):
            yield *runs[run], run.result()


def report(kind: str, codes: Counter[int]) -> tuple[str, bool]:
    """Returns the line of a kind in the report, and whether the kind passes.

    A kind passes if no run failed and the share of pushed models is at most `MAX_PUSHED`.

    Args:
      kind: one of `KINDS`.
      codes: the number of runs by exit code. A run that refuses the data counts as not pushed.
    """
    completed = codes[EXIT_PUSHED] + codes[EXIT_NOT_BLESSED] + codes[EXIT_UNUSABLE]
    failed = codes.total() - completed
    line = f"{kind:<10}{completed:>8}{codes[EXIT_UNUSABLE]:>9}{failed:>8}{codes[EXIT_PUSHED]:>8}"
    if not completed:
        return line, False
    share, interval = (
        codes[EXIT_PUSHED] / completed,
        binomtest(codes[EXIT_PUSHED], completed).proportion_ci(),
    )
    line += f"{share:>9.1%}   {interval.low:.1%} to {interval.high:.1%}"
    return line, not failed and share <= MAX_PUSHED


def main() -> None:
    """Runs the tables that the options specify; exits with 1 if too many models are pushed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100, help="the number of tables of each kind")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument(
        "--jobs", type=int, default=count_cores(), help="the number of parallel runs"
    )
    parser.add_argument("--folder", type=Path, default=Path("output/noise"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    console = Console(soft_wrap=True, highlight=False)
    codes: dict[str, Counter[int]] = {kind: Counter() for kind in options.kinds}
    done = run_tables(options.kinds, options.tables, folder, options.jobs)
    for kind, seed, code in done:
        codes[kind][code] += 1
        if code != EXIT_NOT_BLESSED:
            where = folder / f"{kind}-{seed}" / "run.txt"
            console.print(f"{kind} {seed}: exit code {code}, {where}")
    console.print("\nkind        tables  refused  failed  pushed    share   95 % interval")
    lines = [report(kind, codes[kind]) for kind in options.kinds]
    console.print("\n".join(line for line, _ in lines))
    if not all(passes for _, passes in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
