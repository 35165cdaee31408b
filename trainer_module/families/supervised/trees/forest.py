"""Trees as arrays, in the form in which TensorFlow evaluates them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.families.supervised.trees.rounding import merge_rounded
from trainer_module.problem import Problem
from trainer_module.settings.model import ZOO

MOST_CODES = 50_000
"""The largest number of categories that YDF supports; vocabularies begin with frequent values."""


@dataclass(frozen=True)
class TreeColumn:
    """A column of the trees: a number or a category."""

    feature: str
    """The transformed feature that contains the column."""
    place: int
    """The index within the flattened feature."""
    width: int
    """The width of the flattened feature."""
    codes: int = 0
    """The number of a category's codes: 0 for unknown values, then a code for each index of the
    vocabulary. 0 for a number.
    """
    label: str = ""
    """The name of the column, if the feature's numbers have names."""


def columns_of(problem: Problem) -> tuple[TreeColumn, ...]:
    """Returns the columns of numbers and categories in the order of `problem.features`."""
    return tuple(
        TreeColumn(
            feature.name,
            place,
            math.prod(feature.shape),
            min(feature.vocabulary_size, MOST_CODES - 1) + 1 if feature.vocabulary_size else 0,
            feature.places[place] if feature.places else "",
        )
        for feature in problem.features
        if feature.kind not in ZOO["trees"].refuses
        for place in range(math.prod(feature.shape))
    )


def split_columns(
    tensors: Mapping[str, tf.Tensor], columns: tuple[TreeColumn, ...]
) -> list[np.ndarray]:
    """Returns the values of each column, [examples]: float32, or codes as int32.

    Values that differ by rounding errors only are equal in the result.
    """
    flat = {
        name: (values := tensors[name].numpy()).reshape(len(values), -1)
        for name in {column.feature for column in columns}
    }
    return [_values(flat[column.feature][:, column.place], column) for column in columns]


def _values(values: np.ndarray, column: TreeColumn) -> np.ndarray:
    if not column.codes:
        return merge_rounded(np.ascontiguousarray(values, np.float32))
    codes = values.astype(np.int64) + 1
    return np.where((codes < 0) | (codes >= column.codes), 0, codes).astype(np.int32)


BITS = 16
"""The number of bits in a word of a category's bitmap, so that words are exact in float32."""


_LISTS = {
    "roots": np.int64,
    "column": np.int64,
    "threshold": np.float64,
    "first_child": np.int64,
    "bitmap": np.int64,
    "value": np.float64,
    "words": np.int64,
}
"""The types of the arrays that replace a forest's lists."""


@dataclass
class Forest:
    """Trees as arrays; each iteration adds one tree per output.

    The nodes of all trees are numbered. The children of a node have consecutive numbers: the first
    is for a condition that does not hold. A leaf is its own child.
    """

    columns: tuple[TreeColumn, ...]
    outputs: int
    """The number of outputs that the trees take turns at: tree `i` adds to output `i % outputs`."""
    bias: np.ndarray
    """The bias of each output, [units] float32."""
    means: np.ndarray
    """The replacement for missing numbers, [columns] float32."""
    known_codes: np.ndarray
    """The number of a category's codes in training, [columns] int; higher codes count as code 0."""
    roots: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    """The column of each node's condition."""
    threshold: list[float] = field(default_factory=list)
    """The threshold of each node, from which on its condition holds; NaN, so never, in leaves."""
    first_child: list[int] = field(default_factory=list)
    """The first child of each node."""
    bitmap: list[int] = field(default_factory=list)
    """The index in `words` of each node's bitmap of categories; -1 for numbers."""
    value: list[float] = field(default_factory=list)
    """The value that each leaf adds; of leaves with several values their row in `leaves`."""
    leaves: list[np.ndarray] = field(default_factory=list)
    """The values of leaves with a value for each output, [leaves, units] per tree."""
    words: list[int] = field(default_factory=list)
    """The bitmaps of the codes for which a condition holds, with 16 codes a word."""
    depth: int = 0
    """The largest number of conditions between a root and a leaf."""
    gains: Counter[int] = field(default_factory=Counter)
    """The reduction of the loss by the conditions on each column."""
    boundaries: Sequence[Sequence[float]] = ()
    """The boundaries between the bins of each column, in ascending order, if `add_tree` adds trees
    that were grown on bins; empty for a column without bins."""
    is_averaged: bool = False
    """Whether the sum is a mean of standardised numbers or probabilities, not of logits."""

    @classmethod
    def from_arrays(
        cls, columns: tuple[TreeColumn, ...], arrays: Mapping[str, np.ndarray]
    ) -> Forest:
        """Returns the forest of `to_arrays`, without its `gains` and `boundaries`."""
        lists = {name: arrays[name].tolist() for name in _LISTS}
        return cls(
            columns,
            int(arrays["outputs"]),
            arrays["bias"],
            arrays["means"],
            arrays["known_codes"],
            leaves=[arrays["leaves"]] if len(arrays["leaves"]) else [],
            depth=int(arrays["depth"]),
            is_averaged=bool(arrays["is_averaged"]),
            **lists,
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the nodes and all other arrays that determine the forest's outputs."""
        return {
            **{name: np.array(getattr(self, name), kind) for name, kind in _LISTS.items()},
            "leaves": np.concatenate(self.leaves) if self.leaves else np.zeros(0),
            "bias": self.bias,
            "means": self.means,
            "known_codes": self.known_codes,
            "outputs": np.array(self.outputs),
            "depth": np.array(self.depth),
            "is_averaged": np.array(self.is_averaged),
        }

    def add_tree(self, tree: Any, share: float) -> None:
        """Adds a tree of YDF, with its leaf values multiplied by a share."""
        self.roots.append(self._add_node())
        waiting = deque([(tree.root, self.roots[-1], 0)])
        while waiting:
            node, number, depth = waiting.popleft()
            if node.is_leaf:
                self.value[number] = share * node.value.value
                continue
            self._split(number, node.condition)
            self.first_child[number] = self._add_node()
            self._add_node()
            self.depth = max(self.depth, depth + 1)
            waiting.append((node.neg_child, self.first_child[number], depth + 1))
            waiting.append((node.pos_child, self.first_child[number] + 1, depth + 1))

    def add_nodes(
        self,
        first_child: np.ndarray,
        column: np.ndarray,
        threshold: np.ndarray,
        value: np.ndarray,
        depth: int,
    ) -> None:
        """Adds a tree of numeric conditions whose nodes are numbered from its root, 0.

        Args:
          first_child: the first child of each node; a leaf is its own child, [nodes] int.
          column: the column of each node's condition, [nodes] int.
          threshold: the threshold of each node, NaN in leaves, [nodes] float32.
          value: the values of each node, [nodes, units]; only the values of leaves count.
          depth: the depth of the tree.
        """
        root, count = len(self.first_child), len(first_child)
        self.roots.append(root)
        self.first_child += (first_child + root).tolist()
        self.column += column.tolist()
        self.threshold += threshold.tolist()
        self.bitmap += [-1] * count
        self.depth = max(self.depth, depth)
        if value.shape[1] == 1:
            self.value += value[:, 0].tolist()
            return
        is_leaf = first_child == np.arange(count)
        first = sum(map(len, self.leaves))
        self.value += np.where(is_leaf, first + np.cumsum(is_leaf) - 1, 0).tolist()
        self.leaves.append(value[is_leaf])

    def _add_node(self) -> int:
        number = len(self.first_child)
        self.column.append(0)
        self.threshold.append(np.nan)
        self.first_child.append(number)
        self.bitmap.append(-1)
        self.value.append(0.0)
        return number

    def _split(self, number: int, condition: Any) -> None:
        self.column[number] = condition.attribute
        self.gains[condition.attribute] += condition.score
        codes = self.columns[condition.attribute].codes
        if codes:
            self.bitmap[number] = len(self.words)
            known = self.known_codes[condition.attribute]
            unknown = range(known, codes) if 0 in condition.mask else ()
            self.words += _pack([*condition.mask, *unknown], codes)
        else:
            bins = self.boundaries[condition.attribute]
            self.threshold[number] = (
                bins[condition.threshold_idx - 1] if bins else condition.threshold
            )


def _pack(codes: Sequence[int], size: int) -> list[int]:
    """Returns a bitmap in words of 16 bits."""
    bits = np.zeros(-(-size // BITS) * BITS, np.uint8)
    bits[list(codes)] = 1
    words: list[int] = np.packbits(bits, bitorder="little").view("<u2").tolist()
    return words
