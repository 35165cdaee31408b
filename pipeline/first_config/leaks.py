"""Columns that give the label away, as ExampleValidator finds them in a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from components.column_types.choice import Choice
from components.example_validator.leakage import Strength, Target, label_numbers
from trainer_module.features.number_format import find_number_format
from trainer_module.settings import Task


def find_leaks(
    columns: Mapping[str, pa.Array], choices: Mapping[str, Choice], label: pa.Array, task: Task
) -> Iterator[Strength]:
    """Yields the columns that alone predict the label of the rows, as ExampleValidator finds them.

    Args:
      columns: the columns except the label, [rows] each of numbers or bytes.
      label: the label, [rows].
      task: the label's kind of task.
    """
    labels = label_numbers(label, _numbers(label), task)
    if np.isnan(labels).all():
        return
    target = Target(labels, task)
    for name, values in columns.items():
        is_ignored = name in choices and choices[name].is_ignored
        if is_ignored or values.null_count == len(values):
            continue
        strength = target.strength_of(name, values, _numbers(values))
        if strength is not None and strength.gives_away:
            yield strength


def _numbers(values: pa.Array) -> np.ndarray | None:
    """Returns numbers, also numbers in text, as float64 with NaN for missing ones; None for other
    text.
    """
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values.to_numpy(zero_copy_only=False).astype(np.float64)
    texts = [None if v is None else v.decode(errors="replace") for v in values.to_pylist()]
    number_format = find_number_format([text for text in dict.fromkeys(texts) if text is not None])
    if number_format is None:
        return None
    return np.array([np.nan if text is None else number_format.read(text) for text in texts])
