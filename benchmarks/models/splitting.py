"""The split of a table into the rows of training, of Scopeline's evaluation and of the test."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.models.job import Job, Rows, write_rows
from benchmarks.models.tables import Table
from trainer_module.settings import Task

TEST_SHARE = EVALUATION_SHARE = 5
"""A fifth of the rows is the test, and a fifth of the others Scopeline's eval split."""


def split(
    table: Table, rows: Rows, seed: int, folder: Path, seconds: int, peers_get_all: bool
) -> Job:
    """Writes the rows of a split into an empty folder.

    Args:
      table: the table.
      rows: its rows.
      seed: the seed of the split, and of the models; dated rows are split by date.
      folder: an empty folder.
      seconds: the time limit of models that are trained until a time is over.
      peers_get_all: whether the peers are trained on the eval split too.
    """
    test, rest = _divide(_order(table, rows, seed), TEST_SHARE)
    evaluation, train = _divide(rest, EVALUATION_SHARE)
    job = Job(
        folder=str(folder),
        label=table.label,
        task=str(table.task),
        numbers=[name for name in rows[0] if _is_numeric(table, rows, name)],
        texts=table.texts,
        dates=table.dates,
        seed=seed,
        seconds=seconds,
    )
    write_rows(job.ours / "train.csv", train)
    write_rows(job.ours / "evaluation.csv", evaluation)
    write_rows(job.peers, [*train, *evaluation] if peers_get_all else train)
    write_rows(job.test, test)
    return job


def _order(table: Table, rows: Rows, seed: int) -> Rows:
    """Returns the rows in random order, or from the newest to the oldest."""
    if table.dates:
        return sorted(rows, key=lambda row: row[table.dates[0]], reverse=True)
    return random.Random(seed).sample(rows, len(rows))  # noqa: S311


def _divide(rows: Rows, share: int) -> tuple[Rows, Rows]:
    count = len(rows) // share
    return rows[:count], rows[count:]


def _is_numeric(table: Table, rows: Rows, name: str) -> bool:
    """Returns whether a column has numbers or empty cells, and is no date and no class."""
    if name in table.dates or (name == table.label and table.task is not Task.REGRESSION):
        return False
    return all(_is_number(row[name]) for row in rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return False
    return True
