"""What the trees split on: each number and each category of the transformed features on its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from trainer_module.problem import Problem

MOST_CODES = 50_000
"""YDF takes no more categories in a column; vocabularies begin with the frequent ones."""


@dataclass(frozen=True)
class TreeColumn:
    """One number, or one category."""

    feature: str
    """The transformed feature that it is a part of."""
    place: int
    """Within the feature, flattened."""
    width: int
    """Of the feature, flattened."""
    codes: int = 0
    """How many codes a category has: 0 for any value that no tree may know, then a code for each
    index of the vocabulary. 0 for a number."""
    label: str = ""
    """Its own name, where the feature's numbers have names."""


def columns_of(problem: Problem) -> tuple[TreeColumn, ...]:
    """The columns in order: feature by feature, as `problem.features` has them."""
    return tuple(
        TreeColumn(
            feature.name,
            place,
            math.prod(feature.shape),
            min(feature.vocabulary_size, MOST_CODES - 1) + 1 if feature.vocabulary_size else 0,
            feature.places[place] if feature.places else "",
        )
        for feature in problem.features
        for place in range(math.prod(feature.shape))
    )


def split_columns(
    tensors: Mapping[str, tf.Tensor], columns: tuple[TreeColumn, ...]
) -> list[np.ndarray]:
    """Of each column the values of all examples, [examples]: float32, or codes as int32."""
    flat = {
        name: (values := tensors[name].numpy()).reshape(len(values), -1)
        for name in {column.feature for column in columns}
    }
    return [_values(flat[column.feature][:, column.place], column) for column in columns]


def _values(values: np.ndarray, column: TreeColumn) -> np.ndarray:
    if not column.codes:
        return np.ascontiguousarray(values, np.float32)
    codes = values.astype(np.int64) + 1
    return np.where((codes < 0) | (codes >= column.codes), 0, codes).astype(np.int32)
