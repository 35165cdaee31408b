"""What a model answers as columns of a table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from trainer_module.errors import ConfigError

_CLASSES, _SCORES = "classes", "scores"
SCORE = "score_"
"""Begins the names of the columns of scores, before the class."""


def to_columns(answers: Mapping[str, np.ndarray]) -> dict[str, pa.Array]:
    """A column for each number or name that a row is answered by.

    `class` or `value` come first; the scores of classes are `score_<class>`, and what else has
    several places is numbered from 1, as in `quantiles_1`.

    Args:
      answers: by name, [rows] or [rows, places].
    """
    columns: dict[str, pa.Array] = {}
    for name in sorted(answers, key=lambda name: (answers[name].ndim, name)):
        values = answers[name]
        if name == _CLASSES and _SCORES in answers:
            continue
        if values.ndim == 1:
            columns[name] = _column(values)
            continue
        flat = values.reshape(len(values), -1)
        for place, title in enumerate(_titles(name, answers, flat.shape[1])):
            columns[title] = _column(flat[:, place])
    return columns


def check_names(kept: list[str], answers: Mapping[str, pa.Array]) -> None:
    """Raises ConfigError for a column of the rows that is called as one of the answers."""
    if twice := [name for name in kept if name in answers]:
        raise ConfigError(
            f"--columns {twice[0]}: the answers have a column of that name; rename yours."
        )


def _titles(name: str, answers: Mapping[str, np.ndarray], places: int) -> list[str]:
    if name == _SCORES and _CLASSES in answers and len(answers[_CLASSES]):
        return [f"{SCORE}{_text(label)}" for label in answers[_CLASSES][0]]
    return [f"{name}_{place}" for place in range(1, places + 1)]


def _column(values: np.ndarray) -> pa.Array:
    if values.dtype == object:
        return text_column(pa.array(values.tolist(), pa.binary()))
    return pa.array(values)


def text_column(values: pa.Array) -> pa.Array:
    """Bytes as text; what is no UTF-8 is written by its codes."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if v is None else _text(v) for v in values.to_pylist()]
        return pa.array(texts, pa.string())


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
