"""The merged surveys of all files: the kinds of columns, and notes for the summary."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.column_types.choice import read_choices
from components.example_gen.checks.report import check_label_column, unusable_label
from components.example_gen.checks.values import no_value_error
from components.example_gen.columns.encoded import ColumnKind, show_names
from components.example_gen.columns.type_inference import ColumnSurvey, is_comma_number
from components.example_gen.files import exists, open_file
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources.base import Survey
from trainer_module.errors import DataError, enumerate_names
from trainer_module.features.number_format import SPACES, NumberFormat, find_number_format

_KINDS = {
    schema_pb2.INT: ColumnKind.INT,
    schema_pb2.FLOAT: ColumnKind.FLOAT,
    schema_pb2.BYTES: ColumnKind.BYTES,
}


def read_known_kinds(path: str) -> dict[str, ColumnKind]:
    """Returns the kind of each column of a schema in text format; empty if the file does not exist.

    Raises:
      DataError: the file is not a schema.
    """
    return {f.name: _KINDS[f.type] for f in _read(path).feature if f.type in _KINDS}


def with_known_dates(settings: ExampleGenSettings) -> ExampleGenSettings:
    """Returns the settings with the date formats of the schema, if the file exists.

    Raises:
      DataError: the file is not a schema, or declares a column with invalid settings.
    """
    path = settings.schema_file
    if settings.known_dates is not None or not path or not exists(path):
        return settings
    dates = {
        name: choice.settings["format"]
        for name, choice in read_choices(_read(path), path).items()
        if choice.type == "date" and choice.settings.get("format")
    }
    return settings.model_copy(update={"known_dates": dates})


def _read(path: str) -> schema_pb2.Schema:
    """Returns a schema in text format; an empty one if the file does not exist."""
    if not path or not exists(path):
        return schema_pb2.Schema()
    try:
        with open_file(path) as file:
            return text_format.Parse(file.read().decode(), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} is not a schema in text format: {error}") from None


class ColumnKinds(dict[str, ColumnKind]):
    """The kinds of columns by name, and the notation of a numeric label that is text."""

    label_number_format: NumberFormat | None = None
    are_labelled: bool = False
    """Whether a row of the data has a label; determined only for tasks without a label."""

    def copy(self) -> ColumnKinds:
        """Returns a copy with the same kinds and notation."""
        copied = type(self)(self)
        copied.label_number_format = self.label_number_format
        copied.are_labelled = self.are_labelled
        return copied


def find_label_number_format(
    column: ColumnSurvey, settings: ExampleGenSettings
) -> NumberFormat | None:
    """Returns the notation of a numeric label that is text; None if the label is not.

    Times are excluded, as the unit of the prediction would be undefined.
    """
    if settings.task.is_classification or column.kind is not ColumnKind.BYTES:
        return None
    words = sorted(word for word in column.words if word.strip(SPACES))
    number_format = find_number_format(words, settings.csv.decimal)
    return None if number_format is None or number_format.style == "clock" else number_format


def settle_kind(
    name: str, column: ColumnSurvey, known: ColumnKind, settings: ExampleGenSettings
) -> ColumnKind:
    """Returns the kind of a column in a format that guesses types.

    A quantity is a float even if all of its values are integers, as later values may have a
    fraction or be missing, which the integer input of a model in service could not express. A code
    is text, as its leading zeros count, and so is a day in digits, as float32 would change it. An
    identifier must not change: if float32 would change one, the column becomes integers, even if it
    was a quantity before, and SchemaGen follows.

    Args:
      name: the column's name.
      column: the counts of its values.
      known: its kind in a schema.
      settings: the columns whose integers are identifiers, and those that are declared numeric.
    """
    if column.placeholders and (settings.keeps_placeholders(name) or not column.numbers):
        # The words are values, or only earlier data shows that the column is numeric.
        is_number = known in (ColumnKind.INT, ColumnKind.FLOAT)
        is_number = is_number and not settings.keeps_placeholders(name)
        return known if is_number else ColumnKind.BYTES
    if column.kind is not ColumnKind.INT:
        return max(column.kind, known)
    if is_code(name, column, known, settings):
        return ColumnKind.BYTES
    if name not in settings.exact_columns:
        return known if known is ColumnKind.INT else max(ColumnKind.FLOAT, known)
    if column.needs_integers and known is ColumnKind.FLOAT:
        return ColumnKind.INT
    return max(column.kind, known)


def is_code(
    name: str, column: ColumnSurvey, known: ColumnKind, settings: ExampleGenSettings
) -> bool:
    """Returns whether integers are text: codes, or days in digits.

    In a column of identifiers a single leading zero is enough for codes, and days may stay numbers.
    """
    if settings.is_numeric(name) or known in (ColumnKind.INT, ColumnKind.FLOAT):
        return False
    if name in settings.exact_columns:
        return column.holds_codes or column.padded > 0
    return column.holds_codes or column.holds_days


def check_column(name: str, column: ColumnSurvey, settings: ExampleGenSettings) -> None:
    """Raises DataError if a column of numbers holds some text, or a regression label does."""
    cell = column.first_text
    if name == settings.label:
        # A class may be a number or a name.
        if (
            not settings.task.is_classification
            and column.kind is ColumnKind.BYTES
            and cell is not None
        ):
            raise unusable_label(settings, cell, _label_remedy(column, settings))
        return
    if cell is None or column.kind is not ColumnKind.BYTES or name in settings.mixed_columns:
        return
    if column.are_amounts and settings.is_numeric(name):
        raise DataError(
            f"Column {name!r} is declared numeric, but {cell.value!r} in {cell} is text"
            f" (texts among its values: {column.texts}). Write plain numbers, or read the column by"
            f" `features: {{{name}: {{type: numeric, written: point, unit: $}}}}`, with the unit"
            " beside the numbers, if there is one."
        )
    if not column.is_mixed:
        return
    raise DataError(
        f"Column {name!r} holds {column.numbers} numbers, but {cell.value!r} in {cell} is not a"
        f" number (texts among its values: {column.texts}). {_remedy(column, settings)}, or accept"
        f" numbers and text with `features: {{{name}: {{type: categorical}}}}`."
    )


def _label_remedy(column: ColumnSurvey, settings: ExampleGenSettings) -> str:
    """Returns the remedy for a label that is not a number, depending on all of its texts."""
    with_comma = settings.csv.model_copy(update={"decimal": ","})
    changed = settings.model_copy(update={"csv": with_comma})
    if settings.format == "csv" and find_label_number_format(column, changed) is not None:
        return 'If the point separates thousands, write `data.csv: {decimal: ","}`'
    return _remedy(column, settings)


def _remedy(column: ColumnSurvey, settings: ExampleGenSettings) -> str:
    """Returns the remedy for text among numbers, depending on the first text."""
    assert column.first_text is not None  # noqa: S101 - callers check it
    value = column.first_text.value
    if settings.format == "csv" and is_comma_number(value):
        return 'If the comma separates decimals, write `data.csv: {decimal: ","}`'
    return "Correct it (an empty cell means missing)"


def merge_surveys(surveys: Sequence[Survey], settings: ExampleGenSettings) -> ColumnKinds:
    """Returns the kind of each column over all files, at least the kind that the schema has.

    A numeric label that is text counts as a number.

    Raises:
      DataError: the files' columns differ, a column mixes numbers and text, or the label is
        missing.
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
    number_format = find_label_number_format(total[settings.label], settings)
    if number_format is not None:
        total[settings.label] = replace(total[settings.label], kind=ColumnKind.FLOAT)
    for name, column in total.items():
        # A column that was text in earlier data, such as a code, may hold mostly numbers now.
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
    kinds.label_number_format, kinds.are_labelled = number_format, are_labelled
    return kinds


def _by_file(surveys: Iterable[Survey]) -> list[Survey]:
    return sorted((s for s in surveys if s.columns), key=lambda survey: survey.file)


def _total(surveys: Sequence[Survey]) -> dict[str, ColumnSurvey]:
    """Returns the counts of each column over all files."""
    total: dict[str, ColumnSurvey] = {}
    for survey in surveys:
        for name, column in survey.columns.items():
            total[name] = total.get(name, ColumnSurvey()).merge(column)
    return total


def note_columns(
    surveys: Iterable[Survey], kinds: ColumnKinds, settings: ExampleGenSettings
) -> Iterator[str]:
    """Yields notes on lost leading zeros, on words that count as missing, and on a label read from
    text.
    """
    total = _total(_by_file(surveys))
    for name, column in total.items():
        cell = column.first_padded
        is_lost = column.kind is ColumnKind.INT and kinds[name] is not ColumnKind.BYTES
        if cell is not None and is_lost and not settings.is_numeric(name):
            yield (
                f"column {name!r} is read as numbers, but {column.padded:,} of {column.numbers:,}"
                f" begin with 0, first {cell.value!r} in {cell}; if they are"
                f" codes, write features: {{{name}: {{type: categorical}}}}"
            )
        is_number = kinds[name] in (ColumnKind.INT, ColumnKind.FLOAT)
        if column.placeholders and column.kind is not ColumnKind.BYTES and is_number:
            words = [f"{word!r} ({n:,})" for word, n in sorted(column.placeholders.items())]
            yield (
                f"column {name!r}: among {column.numbers:,} numbers"
                f" {enumerate_names(words, 'and')} count as missing"
            )
    if (number_format := kinds.label_number_format) is not None:
        words = sorted(total[settings.label].words)
        word, number = next((w, n) for w in words if (n := number_format.read(w)) == n)
        yield f"label {settings.label!r} is read from text, where {word!r} is {number:.7g}"


def count_values(surveys: Iterable[Survey], name: str) -> int:
    """Returns the number of values of a column over all files, as far as surveys count them."""
    columns = (survey.columns.get(name, ColumnSurvey()) for survey in surveys)
    return sum(column.numbers + column.texts for column in columns)


def note_unseen_values(surveys: Sequence[Survey], settings: ExampleGenSettings) -> list[str]:
    """Returns notes on missing values of the config that occur in no cell."""
    occurring = {value for survey in surveys for value in survey.missing_values}
    absent = [value for value in settings.csv.missing_values if value not in occurring]
    if not absent or not any(survey.columns for survey in surveys):
        return []
    shown = enumerate_names(map(repr, absent), "and")
    verb = "occurs" if len(absent) == 1 else "occur"
    return [f"data.csv.missing_values: {shown} {verb} in no cell"]


def gather_notes(surveys: Iterable[Survey]) -> list[str]:
    """Returns the notes on how files are read, each once with the files that it applies to."""
    files: dict[str, list[str]] = {}
    for survey in sorted(surveys, key=lambda survey: survey.file):
        for note in survey.notes:
            files.setdefault(note, []).append(survey.file)
    return [
        f"{posixpath.basename(first)}{f' and {len(others)} more' if others else ''}: {note}"
        for note, (first, *others) in files.items()
    ]


def _check_same_columns(one: Survey, other: Survey) -> None:
    missing = sorted(one.columns.keys() - other.columns.keys())
    extra = sorted(other.columns.keys() - one.columns.keys())
    if missing or extra:
        parts = [f"lacks {show_names(missing)}"] if missing else []
        parts += [f"has also {show_names(extra)}"] if extra else []
        raise DataError(
            f"The columns of {other.file} differ from those of {one.file}: it"
            f" {' and '.join(parts)}. Files of one data set need the same columns."
        )
