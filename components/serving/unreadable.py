"""Texts that a model cannot read as the numbers, dates, or yes and no that their column holds.

The model takes them for missing, and answers; nothing in its answer tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from components.serving.model import EXAMPLES_INPUT
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface

_SHOWN = 40
"""Characters of a text in a message."""


@dataclass(frozen=True)
class UnreadableValues:
    """Texts of a column that the model cannot read."""

    column: str
    count: int
    row: int
    """The first row that holds one, from 0."""
    text: str
    """The beginning of the first one."""
    right: str
    """What would be right, in words."""


def find_unreadable(
    columns: Mapping[str, np.ndarray], interface: ModelInterface, *, are_examples: bool
) -> list[UnreadableValues]:
    """The columns with texts that the model cannot read, by the first row of each.

    Args:
      columns: what is asked by the names of requests, or one of serialised tf.Examples.
      interface: of the model.
      are_examples: whether it is the latter.

    Raises:
      DataError: a row is no tf.Example.
    """
    readers = interface.text_readers
    if not readers:
        return []
    texts = _of_examples(columns[EXAMPLES_INPUT], interface) if are_examples else columns
    found = []
    for name, reader in readers.items():
        values = texts[name]
        flat = values.ravel().tolist()
        odd = [place for place, text in enumerate(flat) if text and not reader.is_readable(text)]
        if odd:
            row = odd[0] * len(values) // len(flat)
            text = flat[odd[0]][: 4 * _SHOWN].decode(errors="backslashreplace")[:_SHOWN]
            column = interface.by_request[name].name
            found.append(UnreadableValues(column, len(odd), row, text, reader.right))
    return sorted(found, key=lambda one: (one.row, one.column))


def _of_examples(examples: np.ndarray, interface: ModelInterface) -> dict[str, np.ndarray]:
    """The texts of serialised tf.Examples by the names of requests, [rows]; the first of a row."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    found = {name: np.full(len(examples), b"", object) for name in interface.text_readers}
    for place, serialised in enumerate(examples):
        try:
            features = tf.train.Example.FromString(serialised).features.feature
        except DecodeError:
            raise DataError(f"row {place} is no serialised tf.Example.") from None
        for name, values in found.items():
            column = interface.by_request[name].name
            # To ask for one that is not there would add it.
            texts = features[column].bytes_list.value if column in features else ()
            values[place] = texts[0] if texts else b""
    return found
