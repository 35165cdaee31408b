"""The pictures of a request: measured by their headers before the model decodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from components.serving.servable import Arrays
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface
from trainer_module.features.pixels import SERVED_PIXELS, read_header


@dataclass(frozen=True)
class MeasuredRows:
    """What a model is asked, of which the pictures' headers have been read."""

    columns: Arrays
    """As they were, but for tf.Examples: they are written anew, so that TensorFlow, which parses
    them by code of its own, finds the pictures that were measured."""
    pixels: list[int]
    """Of the pictures of each row."""

    def portions(self) -> Iterator[tuple[Arrays, int]]:
        """The rows in parts of as many pixels as are decoded at a time, with their pixels."""
        all_pixels = sum(self.pixels)
        if all_pixels <= SERVED_PIXELS:
            yield self.columns, all_pixels
            return
        start, total = 0, 0
        for place, more in enumerate(self.pixels):
            if total and total + more > SERVED_PIXELS:
                yield self._cut(start, place), total
                start, total = place, 0
            total += more
        yield self._cut(start, len(self.pixels)), total

    def _cut(self, start: int, stop: int) -> Arrays:
        return {name: values[start:stop] for name, values in self.columns.items()}


def measure_pictures(
    columns: Mapping[str, np.ndarray],
    interface: ModelInterface,
    *,
    are_examples: bool,
    most: int | None = None,
    where: Callable[[int], str] = "row {}".format,
) -> MeasuredRows | None:
    """Reads the headers of all pictures that are asked about.

    Args:
      columns: what is asked by the names of requests, or one of serialised tf.Examples.
      interface: of the model.
      are_examples: whether it is the latter.
      most: pixels that a picture may have; None for as many as it has.
      where: says which row one is, counted from 0.

    Returns:
      None if the model takes no pictures.

    Raises:
      DataError: names the first row with a picture that cannot be decoded, or is too large.
    """
    pictures = [column for column in interface.columns if column.picture]
    if not pictures:
        return None
    if are_examples:
        columns, values = _parse(columns, [column.name for column in pictures], where)
    else:
        values = {c.request: [(v,) for v in columns[c.request].ravel().tolist()] for c in pictures}
    pixels = [0] * len(next(iter(columns.values())))
    for name, rows in values.items():
        for place, row in enumerate(rows):
            try:
                for value in row:
                    pixels[place] += read_header(value, most).pixels
            except DataError as error:
                raise DataError(
                    f"{name!r} of {where(place)} holds no picture that can be decoded: {error}."
                ) from None
    return MeasuredRows(dict(columns), pixels)


def _parse(
    columns: Mapping[str, np.ndarray], names: Sequence[str], where: Callable[[int], str]
) -> tuple[Arrays, dict[str, list[Sequence[bytes]]]]:
    """The examples written anew, and the values of some of their columns, by row."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    ((title, examples),) = columns.items()
    values: dict[str, list[Sequence[bytes]]] = {name: [] for name in names}
    written = np.empty(len(examples), object)
    for place, serialised in enumerate(examples):
        try:
            example = tf.train.Example.FromString(serialised)
        except DecodeError:
            raise DataError(f"{where(place)} is no serialised tf.Example.") from None
        features = example.features.feature
        for name in names:  # To ask for one that is not there would add it.
            values[name].append(features[name].bytes_list.value if name in features else ())
        example.DiscardUnknownFields()
        written[place] = example.SerializeToString()
    return {title: written}, values
