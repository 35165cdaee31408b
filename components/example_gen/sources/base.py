"""What every format offers: which files belong together, and their rows as Arrow batches."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.columns.seen import SeenColumn
from components.example_gen.files import is_folder
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import FileNotes

Files = tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """Some rows of a file."""

    rows: pa.RecordBatch
    """List columns of int64, float32 or binary."""
    first: Cell
    """Where the first row is; the others follow it."""
    examples: list[bytes] | None = None
    """The rows as tf.Examples where the file holds them so already."""
    notes: FileNotes = field(default_factory=FileNotes)
    """What became of files that are not read as they are."""


@dataclass(frozen=True)
class Survey:
    """What a first pass over a file found: its columns, none for formats that need no such pass."""

    file: str = ""
    columns: dict[str, SeenColumn] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What people should know of how the file is read."""
    missing_values: frozenset[str] = frozenset()
    """Those of the config that occur in the file."""
    has_label: bool = False
    """Whether a row has a label, which is looked for where none needs one."""


class Source(abc.ABC):
    """Reads one format; picklable, as it travels to Beam's workers."""

    def __init__(self, settings: ExampleGenSettings) -> None:
        self._settings = settings

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Groups the files of a split, sorted, into what is read together: here each by itself.

        Raises:
          DataError: the files are not what the format needs.
        """
        return [(file,) for file in files if not is_folder(file)]

    def look_over(self, pattern: str, files: Sequence[str]) -> list[str]:
        """What people should know of files that `plan` leaves out.

        Args:
          pattern: the glob that found them.
          files: all that it found, but for hidden ones.
        """
        del pattern, files
        return []

    def survey(self, files: Files) -> Survey:
        """Looks at the columns of a group of files before any is converted.

        Raises:
          DataError: a file cannot be read.
        """
        del files
        return Survey()

    def glance(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns at the beginning of a group of files, and of what kind they are
        there.

        None for formats that say so of each row alone.

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
