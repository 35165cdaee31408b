"""What every format offers: which files belong together, and their rows as Arrow batches."""

from __future__ import annotations

import abc
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from components.example_gen.checks.columns import check_column, check_label_column, show_names
from components.example_gen.checks.numbers import no_value_error
from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.columns.known_kinds import (
    ColumnKinds,
    find_label_writing,
    read_known_kinds,
    settle_kind,
)
from components.example_gen.columns.seen import SeenColumn
from components.example_gen.files.opening import is_folder
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import FileNotes
from trainer_module.errors import DataError, enumerate_names

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
        """The columns at the beginning of a group of files, and of what kind they are there.

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


def merge_surveys(surveys: Sequence[Survey], settings: ExampleGenSettings) -> ColumnKinds:
    """The kind of each column over all files, and not less than the schema has for it.

    A label that is to be a number, and is one in text, is a number.

    Raises:
      DataError: the files' columns differ, one mixes numbers and text, or the label's is missing.
    """
    are_labelled = any(survey.has_label for survey in surveys)
    surveys = _by_file(surveys)
    if not surveys:
        kinds = ColumnKinds()
        kinds.are_labelled = are_labelled
        return kinds
    if not settings.format_spec.may_lack_columns:
        for survey in surveys[1:]:
            _check_same_columns(surveys[0], survey)
    total = _total(surveys)
    check_label_column(total, settings.label, surveys[0].file)
    guesses = settings.format_spec.guesses_types
    known = read_known_kinds(settings.schema_file) if guesses else {}
    writing = find_label_writing(total[settings.label], settings)
    if writing is not None:
        total[settings.label] = replace(total[settings.label], kind=ColumnKind.FLOAT)
    for name, column in total.items():
        # What was text before, such as a code, may hold more numbers today.
        if name == settings.label or known.get(name) is not ColumnKind.BYTES:
            check_column(name, column, settings)
        is_empty = column.kind is ColumnKind.UNKNOWN and name not in known
        if is_empty and name in settings.number_columns:
            raise no_value_error(name)
    kinds = ColumnKinds({name: column.kind for name, column in total.items()})
    if guesses:
        kinds.update(
            {
                name: settle_kind(name, column, known.get(name, ColumnKind.UNKNOWN), settings)
                for name, column in total.items()
            }
        )
    kinds.label_writing, kinds.are_labelled = writing, are_labelled
    return kinds


def _by_file(surveys: Iterable[Survey]) -> list[Survey]:
    return sorted((s for s in surveys if s.columns), key=lambda survey: survey.file)


def _total(surveys: Sequence[Survey]) -> dict[str, SeenColumn]:
    """What was seen of each column over all files."""
    total: dict[str, SeenColumn] = {}
    for survey in surveys:
        for name, column in survey.columns.items():
            total[name] = total.get(name, SeenColumn()).merge(column)
    return total


def note_lost_zeros(
    surveys: Iterable[Survey], kinds: Mapping[str, ColumnKind], settings: ExampleGenSettings
) -> list[str]:
    """What people should know of whole numbers that lose the zeros before them."""
    return [
        f"column {name!r} is read as numbers, but {column.padded:,} of {column.numbers:,} begin"
        f" with 0, first {cell.value!r} in row {cell.row} of {cell.file}; if they are codes, write"
        f" features: {{{name}: {{type: categorical}}}}"
        for name, column in _total(_by_file(surveys)).items()
        if (cell := column.first_padded) is not None
        and column.kind is ColumnKind.INT
        and kinds[name] is not ColumnKind.BYTES
        and not settings.are_numbers(name)
    ]


def note_placeholders(surveys: Iterable[Survey], kinds: Mapping[str, ColumnKind]) -> list[str]:
    """What people should know of words among numbers that count as missing."""
    return [
        f"column {name!r}: among {column.numbers:,} numbers"
        f" {enumerate_names([f'{w!r} ({n:,})' for w, n in sorted(words.items())], 'and')} count as"
        " missing"
        for name, column in _total(_by_file(surveys)).items()
        if (words := column.placeholders)
        and column.kind is not ColumnKind.BYTES
        and kinds[name] in (ColumnKind.INT, ColumnKind.FLOAT)
    ]


def note_written_label(
    surveys: Iterable[Survey], kinds: ColumnKinds, settings: ExampleGenSettings
) -> list[str]:
    """What people should know of a label whose numbers are text."""
    writing = kinds.label_writing
    if writing is None:
        return []
    words = sorted(_total(_by_file(surveys))[settings.label].words)
    word, number = next((w, n) for w in words if (n := writing.read(w)) == n)
    return [f"label {settings.label!r} is read from text, where {word!r} is {number:.7g}"]


def count_values(surveys: Iterable[Survey], name: str) -> int:
    """How many values a column has over all files, as far as a survey looks at them."""
    columns = (survey.columns.get(name, SeenColumn()) for survey in surveys)
    return sum(column.numbers + column.texts for column in columns)


def note_unseen_values(surveys: Sequence[Survey], settings: ExampleGenSettings) -> list[str]:
    """What people should know of values that are to mean missing, and occur nowhere."""
    seen = {value for survey in surveys for value in survey.missing_values}
    unseen = [value for value in settings.csv.missing_values if value not in seen]
    if not unseen or not any(survey.columns for survey in surveys):
        return []
    shown = enumerate_names(map(repr, unseen), "and")
    verb = "occurs" if len(unseen) == 1 else "occur"
    return [f"data.csv.missing_values: {shown} {verb} in no cell"]


def gather_notes(surveys: Iterable[Survey]) -> list[str]:
    """What people should know of how the files are read, each thing once."""
    files: dict[str, list[str]] = {}
    for survey in sorted(surveys, key=lambda survey: survey.file):
        for note in survey.notes:
            files.setdefault(note, []).append(survey.file)
    return [
        f"{posixpath.basename(of[0])}{f' and {len(of) - 1} more' if len(of) > 1 else ''}: {note}"
        for note, of in files.items()
    ]


def _check_same_columns(one: Survey, other: Survey) -> None:
    missing = sorted(one.columns.keys() - other.columns.keys())
    extra = sorted(other.columns.keys() - one.columns.keys())
    if missing or extra:
        parts = [f"lacks {show_names(missing)}"] if missing else []
        parts += [f"has in addition {show_names(extra)}"] if extra else []
        raise DataError(
            f"The columns of {other.file} differ from those of {one.file}: it"
            f" {' and '.join(parts)}. Files of one data set need the same columns."
        )


class RowsSource(Source):
    """A source that changes the rows of another one; what it does not override is the other's."""

    def __init__(self, settings: ExampleGenSettings, rows: Source) -> None:
        """Reads nothing yet.

        Args:
          settings: of the rows.
          rows: reads the rows.
        """
        super().__init__(settings)
        self._rows = rows

    def plan(self, files: Sequence[str]) -> list[Files]:
        """As the rows' format has it."""
        return self._rows.plan(files)

    def look_over(self, pattern: str, files: Sequence[str]) -> list[str]:
        """As the rows' format has it."""
        return self._rows.look_over(pattern, files)

    def glance(self, files: Files) -> dict[str, ColumnKind]:
        """As the rows' format has it."""
        return self._rows.glance(files)
