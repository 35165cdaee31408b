"""Trees as arrays, on columns: what YDF has grown, in the form in which TensorFlow walks them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    """Returns the columns in order: feature by feature, as `problem.features` has them."""
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


BITS = 32
"""Of a word of a category's bitmap."""


@dataclass
class Forest:
    """Trees of which several, one for each output, are grown at a time.

    The nodes of all trees are numbered. The two nodes below another one follow each other: the
    first is where its condition does not hold. A leaf is below itself.
    """

    columns: tuple[TreeColumn, ...]
    outputs: int
    """1, or the number of classes: tree `i` adds to output `i % outputs`."""
    bias: np.ndarray
    """[outputs] float32: what the values of the leaves are added to."""
    means: np.ndarray
    """[columns] float32: what stands for a number that is missing."""
    known: np.ndarray
    """[columns] int: how many of a category's codes there were to learn from; those from there on
    count as code 0 does."""
    roots: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    """Of each node: what its condition is about."""
    threshold: list[float] = field(default_factory=list)
    """Of each node: the condition holds for numbers from here on; NaN, so never, in leaves."""
    below: list[int] = field(default_factory=list)
    """Of each node: the first of the two nodes below it."""
    bitmap: list[int] = field(default_factory=list)
    """Of each node: where the bitmap of its categories begins in `words`; -1 for numbers."""
    value: list[float] = field(default_factory=list)
    """Of each node: what a leaf adds."""
    words: list[int] = field(default_factory=list)
    """Bitmaps of the codes for which a condition holds, one bit each, of 32 a word."""
    depth: int = 0
    """Conditions between a root and its farthest leaf."""
    gains: Counter[int] = field(default_factory=Counter)
    """By column what its conditions have taken off the loss."""

    def add(self, tree: Any, share: float) -> None:
        """Adds a tree of YDF's, whose leaves count for a share of what they say."""
        self.roots.append(self._new())
        waiting = deque([(tree.root, self.roots[-1], 0)])
        while waiting:
            node, number, depth = waiting.popleft()
            if node.is_leaf:
                self.value[number] = share * node.value.value
                continue
            self._split(number, node.condition)
            self.below[number] = self._new()
            self._new()
            self.depth = max(self.depth, depth + 1)
            waiting.append((node.neg_child, self.below[number], depth + 1))
            waiting.append((node.pos_child, self.below[number] + 1, depth + 1))

    def _new(self) -> int:
        number = len(self.below)
        self.column.append(0)
        self.threshold.append(np.nan)
        self.below.append(number)
        self.bitmap.append(-1)
        self.value.append(0.0)
        return number

    def _split(self, number: int, condition: Any) -> None:
        self.column[number] = condition.attribute
        self.gains[condition.attribute] += condition.score
        codes = self.columns[condition.attribute].codes
        if codes:
            self.bitmap[number] = len(self.words)
            known = self.known[condition.attribute]
            unknown = range(known, codes) if 0 in condition.mask else ()
            self.words += _pack([*condition.mask, *unknown], codes)
        else:
            self.threshold[number] = condition.threshold


def _pack(codes: Sequence[int], size: int) -> list[int]:
    """Returns a bitmap in words of 32 bits."""
    bits = np.zeros(-(-size // BITS) * BITS, np.uint8)
    bits[list(codes)] = 1
    words: list[int] = np.packbits(bits, bitorder="little").view("<i4").tolist()
    return words
