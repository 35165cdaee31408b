"""The interface of sources, which read groups of files as Arrow batches."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.columns.type_inference import ColumnSurvey
from components.example_gen.files import is_folder
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import FileNotes

Files = tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """A batch of consecutive rows of a file."""

    rows: pa.RecordBatch
    """The rows. Each column consists of lists of int64, float32 or binary values."""
    first: Cell
    """The cell of the first row."""
    examples: list[bytes] | None = None
    """The rows as serialized tf.Examples, if the file contains tf.Examples."""
    notes: FileNotes = field(default_factory=FileNotes)
    """The counts of pictures that are converted or left out."""


@dataclass(frozen=True)
class Survey:
    """The result of a first pass over a file. It is empty for formats without a first pass."""

    file: str = ""
    columns: dict[str, ColumnSurvey] = field(default_factory=dict)
    """The survey of each column, by name."""
    notes: tuple[str, ...] = ()
    """Notes for the summary about the dialect and changed values of the file."""
    missing_values: frozenset[str] = frozenset()
    """The values in `data.csv.missing_values` that occur in the file."""
    has_label: bool = False
    """Whether a row has a label. Only set for tasks that need no label."""
    rows: int = 0
    """The number of rows of the file, or 0 if unknown."""


class Source(abc.ABC):
    """A reader of one format. Sources must be picklable, as Beam sends them to its workers."""

    def __init__(self, settings: ExampleGenSettings) -> None:
        self._settings = settings

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns the groups of files that are read together; by default, each file is a group.

        Args:
          files: the sorted files of an input split.

        Raises:
          DataError: the files do not have the format.
        """
        return [(file,) for file in files if not is_folder(file)]

    def note_ignored_files(self, pattern: str, files: Sequence[str]) -> list[str]:
        """Returns notes on files that `plan` leaves out.

        Args:
          pattern: the glob that found the files.
          files: all files that the glob found, except hidden ones.
        """
        del pattern, files
        return []

    def survey(self, files: Files) -> Survey:
        """Reads a group of files and returns the columns with their kinds.

        All groups are surveyed before any group is read.

        Raises:
          DataError: a file cannot be read.
        """
        del files
        return Survey()

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns and their kinds at the beginning of a group of files.

        The result is empty for formats in which only the rows define columns.

        Raises:
          DataError: a file cannot be read.
        """
        del files
        return {}

    @abc.abstractmethod
    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of a group, converted to the columns' kinds, in batches of limited size.

        Args:
          files: the group.
          kinds: the kinds of the columns in all files.

        Raises:
          DataError: a file cannot be read.
        """
