"""Inputs of a model: names of signatures, headers of pictures, and unreadable texts.

If the model cannot parse a text as the number, date or boolean of its column, the text counts as a
missing value. The response does not show which values were missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.example_gen.columns.encoded import ColumnKind
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface
from trainer_module.features.pixels import SERVED_PIXELS, read_header

Arrays = dict[str, np.ndarray]
RAW, EXAMPLES = "serving_raw", "serving_default"
"""The serving signatures: `serving_raw` takes a tensor per column, and `serving_default` takes
serialised tf.Examples."""
EXAMPLES_INPUT = "examples"
"""The only input of `serving_default`."""


def join_rows(parts: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
    """Returns the outputs by name with the rows of one or more parts with the same outputs."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def kind_of_column(dtype: str, is_whole: bool) -> ColumnKind:
    """Returns the kind in which a column is read.

    Args:
      dtype: the dtype that the model takes.
      is_whole: whether the values are whole numbers.
    """
    if dtype == "string":
        return ColumnKind.BYTES
    return ColumnKind.INT if is_whole else ColumnKind.FLOAT


@dataclass(frozen=True)
class MeasuredRows:
    """Rows of a request whose picture headers have been read."""

    columns: Arrays
    """The input columns. tf.Examples are serialised again after their pictures were measured, so
    that TensorFlow's parser reads the same pictures."""
    pixels: list[int]
    """The number of pixels in the pictures of each row."""

    def portions(self) -> Iterator[tuple[Arrays, int]]:
        """Yields parts of the rows, and the number of pixels of each part.

        All pictures of a part may be decoded at the same time.
        """
        all_pixels = sum(self.pixels)
        if all_pixels <= SERVED_PIXELS:
            yield self.columns, all_pixels
            return
        start, total = 0, 0
        for row, row_pixels in enumerate(self.pixels):
            if total and total + row_pixels > SERVED_PIXELS:
                yield self._slice(start, row), total
                start, total = row, 0
            total += row_pixels
        yield self._slice(start, len(self.pixels)), total

    def _slice(self, start: int, stop: int) -> Arrays:
        return {name: values[start:stop] for name, values in self.columns.items()}


_ROW = "row {}".format


def measure_pictures(
    columns: Mapping[str, np.ndarray],
    interface: ModelInterface,
    *,
    are_examples: bool,
    max_pixels: int | None = None,
    format_row: Callable[[int], str] = _ROW,
) -> MeasuredRows | None:
    """Reads the headers of all pictures in a request.

    Args:
      columns: the inputs by request name, or only the input of serialised tf.Examples.
      interface: the interface of the model.
      are_examples: whether the input is serialised tf.Examples.
      max_pixels: the most pixels that a picture may have, or None for no limit.
      format_row: formats the number of a row, counted from 0, for error messages.

    Returns:
      The rows with their pixels, or None if the model takes no pictures.

    Raises:
      DataError: a picture cannot be decoded or is too large. The message names the picture's row.
    """
    pictures = [column for column in interface.columns if column.picture]
    if not pictures:
        return None
    if are_examples:
        columns, values = _parse(columns, [column.name for column in pictures], format_row)
    else:
        values = {c.request: [(v,) for v in columns[c.request].ravel().tolist()] for c in pictures}
    pixels = [0] * len(next(iter(columns.values())))
    for name, rows in values.items():
        for row, pictures_of_row in enumerate(rows):
            try:
                for picture in pictures_of_row:
                    pixels[row] += read_header(picture, max_pixels).pixels
            except DataError as error:
                raise DataError(
                    f"{name!r} of {format_row(row)} cannot be decoded as a picture: {error}."
                ) from None
    return MeasuredRows(dict(columns), pixels)


def _parse(
    columns: Mapping[str, np.ndarray], names: Sequence[str], format_row: Callable[[int], str]
) -> tuple[Arrays, dict[str, list[Sequence[bytes]]]]:
    """Returns the examples serialised again, and the values of the named columns by row."""
    ((input_name, examples),) = columns.items()
    values: dict[str, list[Sequence[bytes]]] = {name: [] for name in names}
    serialised = np.empty(len(examples), object)
    for row, example in enumerate(_parse_examples(examples, format_row)):
        for name in names:
            values[name].append(_texts_of(example, name))
        example.DiscardUnknownFields()
        serialised[row] = example.SerializeToString()
    return {input_name: serialised}, values


def _parse_examples(examples: np.ndarray, format_row: Callable[[int], str]) -> Iterator[Any]:
    """Yields parsed tf.Examples. Raises DataError for the first row that cannot be parsed."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    for row, serialised in enumerate(examples):
        try:
            yield tf.train.Example.FromString(serialised)
        except DecodeError:
            raise DataError(f"{format_row(row)} is not a serialised tf.Example.") from None


def _texts_of(example: Any, name: str) -> Sequence[bytes]:
    """Returns the texts of a column, or no texts if the example has no such column."""
    features = example.features.feature
    return features[name].bytes_list.value if name in features else ()


_SHOWN_CHARS = 40
"""The most characters of a text that a message shows."""


@dataclass(frozen=True)
class UnreadableValues:
    """The texts of a column that the model cannot parse."""

    column: str
    count: int
    row: int
    """The first row with an unreadable text, counted from 0."""
    text: str
    """The beginning of the first unreadable text."""
    expected: str
    """A description of valid texts."""


def find_unreadable(
    columns: Mapping[str, np.ndarray], interface: ModelInterface, *, are_examples: bool
) -> list[UnreadableValues]:
    """Returns the columns with texts that the model cannot parse.

    The columns are sorted by the first row with an unreadable text.

    Args:
      columns: the inputs by request name, or only the input of serialised tf.Examples.
      interface: the interface of the model.
      are_examples: whether the input is serialised tf.Examples.

    Raises:
      DataError: a row is not a serialised tf.Example.
    """
    readers = interface.text_readers
    if not readers:
        return []
    texts = _first_texts(columns[EXAMPLES_INPUT], interface) if are_examples else columns
    result = []
    for name, reader in readers.items():
        values = texts[name]
        flat = values.ravel().tolist()
        bad = [index for index, text in enumerate(flat) if text and not reader.is_readable(text)]
        if bad:
            row = bad[0] * len(values) // len(flat)
            text = flat[bad[0]][: 4 * _SHOWN_CHARS].decode(errors="backslashreplace")[:_SHOWN_CHARS]
            column = interface.by_request[name].name
            result.append(UnreadableValues(column, len(bad), row, text, reader.right))
    return sorted(result, key=lambda unreadable: (unreadable.row, unreadable.column))


def _first_texts(examples: np.ndarray, interface: ModelInterface) -> dict[str, np.ndarray]:
    """Returns the first text of each row of serialised tf.Examples, by request name."""
    result = {name: np.full(len(examples), b"", object) for name in interface.text_readers}
    for row, example in enumerate(_parse_examples(examples, _ROW)):
        for name, values in result.items():
            texts = _texts_of(example, interface.by_request[name].name)
            values[row] = texts[0] if texts else b""
    return result
