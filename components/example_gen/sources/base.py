"""The interface of formats: groups of files, and their rows as Arrow batches."""

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
    """List columns of int64, float32 or binary."""
    first: Cell
    """The place of the first row; the others follow it."""
    examples: list[bytes] | None = None
    """The rows as tf.Examples, if the file holds them in that form."""
    notes: FileNotes = field(default_factory=FileNotes)
    """The counts of files that are converted or left out."""


@dataclass(frozen=True)
class Survey:
    """The result of a first pass over a file: its columns; empty for formats that need no first
    pass.
    """

    file: str = ""
    columns: dict[str, ColumnSurvey] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Notes for the summary on how the file is read."""
    missing_values: frozenset[str] = frozenset()
    """The config's missing values that occur in the file."""
    has_label: bool = False
    """Whether a row has a label; determined only for tasks without a label."""


class Source(abc.ABC):
    """A reader of one format; picklable, as it is sent to Beam's workers."""

    def __init__(self, settings: ExampleGenSettings) -> None:
        self._settings = settings

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Groups the sorted files of a split by which of them are read together: by default each
        alone.

        Raises:
          DataError: the files do not fit the format.
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
        """Reads the columns of a group of files before any of them is converted.

        Raises:
          DataError: a file cannot be read.
        """
        del files
        return Survey()

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns and their kinds at the beginning of a group of files.

        Formats that define columns only row by row return an empty dictionary.

        Raises:
          DataError: a file cannot be read.
        """
        del files
        return {}

    @abc.abstractmethod
    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields a group's rows in batches of bounded size, converted to the columns' kinds.

        Raises:
          DataError: a file cannot be read.
        """
