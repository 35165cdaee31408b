"""The merged surveys of all files: the kinds of the columns, and notes for the summary."""

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
from trainer_module.errors import DataError, as_key, enumerate_names
from trainer_module.features.number_format import SPACES, NumberFormat, find_number_format

_KINDS = {
    schema_pb2.INT: ColumnKind.INT,
    schema_pb2.FLOAT: ColumnKind.FLOAT,
    schema_pb2.BYTES: ColumnKind.BYTES,
}


def read_known_kinds(path: str) -> dict[str, ColumnKind]:
    """Returns the kinds of the columns of a schema file, or an empty dict if there is no file.

    Raises:
      DataError: the file is not a schema in text format.
    """
    return {f.name: _KINDS[f.type] for f in _read(path).feature if f.type in _KINDS}


def with_known_dates(settings: ExampleGenSettings) -> ExampleGenSettings:
    """Returns the settings with the date formats in the schema file. Without the file, the settings
    are returned unchanged.

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
    """Returns the schema in a file. If the file does not exist, the schema is empty."""
    if not path or not exists(path):
        return schema_pb2.Schema()
    try:
        with open_file(path) as file:
            return text_format.Parse(file.read().decode(), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} is not a schema in text format: {error}") from None


class ColumnKinds(dict[str, ColumnKind]):
    """The kinds of all columns by name, and facts about the label."""

    label_number_format: NumberFormat | None = None
    """The notation of a numeric label that is text, or None for another label."""
    are_labelled: bool = False
    """Whether a row of the data has a label. Only set for tasks that need no label."""

    def copy(self) -> ColumnKinds:
        """Returns a copy with the same kinds and notation."""
        copied = type(self)(self)
        copied.label_number_format = self.label_number_format
        copied.are_labelled = self.are_labelled
        return copied


def find_label_number_format(
    column: ColumnSurvey, settings: ExampleGenSettings
) -> NumberFormat | None:
    """Returns the notation of a numeric label that is text, or None for another label.

    Durations such as 1:30 are not read, as the unit of the prediction would be undefined.
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

    Quantities are floats even if all values are integers: later values may have fractions or be
    missing, which the integer input of a model in service could not hold. Codes are text, as their
    leading zeros must be kept. Days such as 20260131 are text, as float32 would change them. The
    integers of `exact_columns` must not change: if float32 cannot hold them, the column becomes
    integers, even if it is a float in the schema, and SchemaGen changes the schema.

    Args:
      known: the kind of the column in a schema; UNKNOWN without a schema.
    """
    if column.placeholders and (settings.keeps_placeholders(name) or not column.numbers):
        # The placeholders are values, unless the schema shows that the column is numeric.
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
    """Returns whether a column of integers is text, as the integers are codes or days.

    In `exact_columns`, a single leading zero is enough for codes, and days remain numbers.
    """
    if settings.is_numeric(name) or known in (ColumnKind.INT, ColumnKind.FLOAT):
        return False
    if name in settings.exact_columns:
        return column.holds_codes or column.padded > 0
    return column.holds_codes or column.holds_days


def check_column(name: str, column: ColumnSurvey, settings: ExampleGenSettings) -> None:
    """Raises DataError if a column mixes numbers and text, or a numeric label is text."""
    cell = column.first_text
    if name == settings.label:
        # In a classification, a label may be a number or text.
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
            f" (number of values that are text: {column.texts}). Write plain numbers, or read the"
            " column by"
            f" `features: {{{as_key(name)}: {{type: numeric, written: point, unit: $}}}}`, with"
            " the unit of the values, if they have one."
        )
    if not column.is_mixed:
        return
    raise DataError(
        f"Column {name!r} contains {column.numbers} numbers, but {cell.value!r} in {cell} is not a"
        f" number (number of values that are text: {column.texts}). {_remedy(column, settings)}, or"
        f" accept numbers and text by `features: {{{as_key(name)}: {{type: categorical}}}}`."
    )


def _label_remedy(column: ColumnSurvey, settings: ExampleGenSettings) -> str:
    """Returns the correction for a numeric label that is text, depending on all texts."""
    csv_settings = settings.csv.model_copy(update={"decimal": ","})
    with_comma = settings.model_copy(update={"csv": csv_settings})
    if settings.format == "csv" and find_label_number_format(column, with_comma) is not None:
        return 'If the point separates thousands, write `data.csv: {decimal: ","}`'
    return _remedy(column, settings)


def _remedy(column: ColumnSurvey, settings: ExampleGenSettings) -> str:
    """Returns the correction for text among numbers, depending on the first text."""
    assert column.first_text is not None  # noqa: S101 - callers check it
    value = column.first_text.value
    if settings.format == "csv" and is_comma_number(value):
        return 'If the comma separates decimals, write `data.csv: {decimal: ","}`'
    return "Correct the value, leave the cell empty if the value is missing"


def merge_surveys(surveys: Sequence[Survey], settings: ExampleGenSettings) -> ColumnKinds:
    """Returns the kind of each column for all files, in accordance with the schema.

    A numeric label that is written as text is a number.

    Raises:
      DataError: the columns of the files differ, a column mixes numbers and text, the label is
        missing, or a column that is declared numeric is empty.
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
    total = add_surveys(surveys)
    check_label_column(total, settings.label, surveys[0].file)
    guesses = settings.format_spec.guesses_types
    known = read_known_kinds(settings.schema_file) if guesses else {}
    number_format = find_label_number_format(total[settings.label], settings)
    if number_format is not None:
        total[settings.label] = replace(total[settings.label], kind=ColumnKind.FLOAT)
    for name, column in total.items():
        # A column that is text in the schema, such as a code, may hold numbers and text.
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


def add_surveys(surveys: Sequence[Survey]) -> dict[str, ColumnSurvey]:
    """Returns the merged survey of each column of all files, by name."""
    total: dict[str, ColumnSurvey] = {}
    for survey in surveys:
        for name, column in survey.columns.items():
            total[name] = total.get(name, ColumnSurvey()).merge(column)
    return total


def note_columns(
    surveys: Iterable[Survey], kinds: ColumnKinds, settings: ExampleGenSettings
) -> Iterator[str]:
    """Yields notes on leading zeros that are lost, on placeholders that count as missing, and on a
    label that is read from text.
    """
    total = add_surveys(_by_file(surveys))
    for name, column in total.items():
        cell = column.first_padded
        is_lost = column.kind is ColumnKind.INT and kinds[name] is not ColumnKind.BYTES
        if cell is not None and is_lost and not settings.is_numeric(name):
            yield (
                f"column {name!r} is read as numbers, but {column.padded:,} of {column.numbers:,}"
                f" values begin with 0, first {cell.value!r} in {cell}; if the values are codes,"
                f" write features: {{{as_key(name)}: {{type: categorical}}}}"
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
    """Returns the number of values of a column in all files, as far as surveys count values."""
    columns = (survey.columns.get(name, ColumnSurvey()) for survey in surveys)
    return sum(column.numbers + column.texts for column in columns)


def note_unseen_values(surveys: Sequence[Survey], settings: ExampleGenSettings) -> list[str]:
    """Returns a note on values of `data.csv.missing_values` that no cell contains."""
    occurring = {value for survey in surveys for value in survey.missing_values}
    absent = [value for value in settings.csv.missing_values if value not in occurring]
    if not absent or not any(survey.columns for survey in surveys):
        return []
    shown = enumerate_names(map(repr, absent), "and")
    verb = "occurs" if len(absent) == 1 else "occur"
    return [f"data.csv.missing_values: {shown} {verb} in no cell of the data"]


def gather_notes(surveys: Iterable[Survey]) -> list[str]:
    """Returns the distinct notes of the surveys, each with the first file and the number of other
    files.
    """
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
            f"The columns of {other.file} differ from the columns of {one.file}: {other.file}"
            f" {' and '.join(parts)}. All files of the data need the same columns."
        )
