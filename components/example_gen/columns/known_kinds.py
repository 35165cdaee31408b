"""The types of columns whose format guesses them, and those that earlier data gave them."""

from __future__ import annotations

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.column_types.choice import read_choices
from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.columns.seen import SeenColumn
from components.example_gen.files.opening import exists, open_file
from components.example_gen.formats import ExampleGenSettings
from trainer_module.errors import DataError
from trainer_module.features.number_format import SPACES, Writing, find_writing

_KINDS = {
    schema_pb2.INT: ColumnKind.INT,
    schema_pb2.FLOAT: ColumnKind.FLOAT,
    schema_pb2.BYTES: ColumnKind.BYTES,
}


def read_known_kinds(path: str) -> dict[str, ColumnKind]:
    """The kind of each column of a schema in text format; none if there is no such file.

    Raises:
      DataError: the file is no schema.
    """
    return {f.name: _KINDS[f.type] for f in _read(path).feature if f.type in _KINDS}


def with_known_dates(settings: ExampleGenSettings) -> ExampleGenSettings:
    """The settings, with the formats of dates in the schema if it is there.

    Raises:
      DataError: the file is no schema, or says of a column what none can be.
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
    """A schema in text format; an empty one if there is no such file."""
    if not path or not exists(path):
        return schema_pb2.Schema()
    try:
        with open_file(path) as file:
            return text_format.Parse(file.read().decode(), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} is no schema in text format: {error}") from None


class ColumnKinds(dict[str, ColumnKind]):
    """The kinds of columns by name, and how a label is written that is a number in text."""

    label_writing: Writing | None = None
    are_labelled: bool = False
    """Whether a row of the data has a label, where none needs one."""

    def copy(self) -> ColumnKinds:
        """The same kinds and writing, apart from this one."""
        copied = type(self)(self)
        copied.label_writing, copied.are_labelled = self.label_writing, self.are_labelled
        return copied


def find_label_writing(column: SeenColumn, settings: ExampleGenSettings) -> Writing | None:
    """How a label is written that is to be a number and is text; None where it is none.

    Times are none, as nothing says in which unit they are to be predicted.
    """
    if settings.task.is_classification or column.kind is not ColumnKind.BYTES:
        return None
    writing = find_writing(sorted(word for word in column.words if word.strip(SPACES)))
    return None if writing is None or writing.style == "clock" else writing


def settle_kind(
    name: str, column: SeenColumn, known: ColumnKind, settings: ExampleGenSettings
) -> ColumnKind:
    """The kind of a column of a format that guesses types.

    A quantity is a float even where all of it happens to be whole: it may have a fraction or be
    missing some day, which an integer cannot say to a model in service. A code is text, whose
    zeros at the beginning count, and so is a day in digits, as a float would be another day. A name
    has to stay what it is: where a float would change one, the column becomes whole numbers, though
    it was a quantity before, and SchemaGen follows.

    Args:
      name: the column's.
      column: what was seen of its values.
      known: what a schema has for it.
      settings: which columns' whole numbers are names, and which are declared to be numbers.
    """
    if column.placeholders and (settings.keeps_words(name) or not column.numbers):
        # The words are values, or nothing but earlier data says that numbers are meant.
        is_number = known in (ColumnKind.INT, ColumnKind.FLOAT) and not settings.keeps_words(name)
        return known if is_number else ColumnKind.BYTES
    if column.kind is not ColumnKind.INT:
        return max(column.kind, known)
    if is_code(name, column, known, settings):
        return ColumnKind.BYTES
    if name not in settings.names:
        return known if known is ColumnKind.INT else max(ColumnKind.FLOAT, known)
    if column.needs_integers and known is ColumnKind.FLOAT:
        return ColumnKind.INT
    return max(column.kind, known)


def is_code(name: str, column: SeenColumn, known: ColumnKind, settings: ExampleGenSettings) -> bool:
    """Whether whole numbers are text: codes, days in digits.

    Where they are names, a single zero before one shows it, and days may stay numbers.
    """
    if settings.are_numbers(name) or known in (ColumnKind.INT, ColumnKind.FLOAT):
        return False
    if name in settings.names:
        return column.holds_codes or column.padded > 0
    return column.holds_codes or column.holds_days
