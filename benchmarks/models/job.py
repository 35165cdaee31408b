"""A split of a table in files, and all that a model may know of it.

The module needs the standard library alone, as models in other environments read jobs with it.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

Rows = list[dict[str, str]]

CORES = 2
"""The cores of each model."""

_FILE = "job.json"


@dataclass(frozen=True)
class Job:
    """A folder with the rows of a split, and the task of the models."""

    folder: str
    label: str
    task: str
    """`binary`, `multiclass` or `regression`."""
    numbers: Sequence[str]
    """The columns of numbers and empty cells, without the label of a classification."""
    texts: Sequence[str]
    """The columns of sentences."""
    dates: Sequence[str]
    """The columns of dates; the first one orders the rows."""
    seed: int
    seconds: int
    """The time limit of models that are trained until a time is over."""

    @property
    def ours(self) -> Path:
        """The folder with `train.csv` and `evaluation.csv`, from which Scopeline reads."""
        return Path(self.folder, "ours")

    @property
    def peers(self) -> Path:
        """The file with the rows that the peers are trained on."""
        return Path(self.folder, "peers.csv")

    @property
    def test(self) -> Path:
        """The file with the rows that measure the models."""
        return Path(self.folder, "test.csv")

    @property
    def columns(self) -> list[str]:
        """The columns without the label, in the order of the files."""
        with self.test.open(newline="") as file:
            return [name for name in next(csv.reader(file)) if name != self.label]

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number."""
        return self.task == "regression"

    def scratch(self, name: str) -> Path:
        """Returns the path of a new folder for the files of a model."""
        return Path(self.folder, name)

    def save(self) -> Path:
        """Writes the description of the job into its folder, and returns the path."""
        path = Path(self.folder, _FILE)
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def load(cls, path: Path) -> Job:
        """Reads a description that `save` has written."""
        return cls(**json.loads(path.read_text()))


def write_rows(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Writes rows with equal columns as CSV with a header."""
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_rows(path: Path) -> Rows:
    """Reads the rows of a CSV file with a header."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def megabytes(folder: Path) -> float:
    """Returns the size of the files in a folder, in megabytes."""
    files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    return sum(file.stat().st_size for file in files) / 1e6
