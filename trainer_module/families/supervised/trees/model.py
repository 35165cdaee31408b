"""A forest as a Keras model of plain TensorFlow operations, which every runtime supports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.families.supervised.trees.forest import BITS, Forest
from trainer_module.plain_layer import PlainLayer
from trainer_module.problem import Problem

NODE = ("column", "first_child", "bitmap")
"""The entries of a node in the weight `nodes`."""

HALVES = [2.0**-shift for shift in range(BITS)]
"""The factors that shift a word to the right by 0 bits, 1 bit, ..."""

MAX_PARALLEL_TREES = 4096
"""The largest number of trees evaluated at once; a level takes 64 KiB for each row of a request."""


@tf_keras.saving.register_keras_serializable("scopeline")
class Walk(PlainLayer):
    """Computes the outputs of all trees, [batch, outputs], from a list of features, [batch, n].

    Trees are evaluated in parallel, one level at a time; very many trees in consecutive slices.
    """

    def __init__(
        self,
        codes: Sequence[int],
        outputs: int,
        trees: int,
        nodes: int,
        words: int,
        depth: int,
        leaves: int = 0,
        width: int = 1,
        **options: Any,
    ) -> None:
        """Stores the sizes, from which the layer can be built; the weights hold the trees.

        Args:
          codes: the number of codes of each feature's categories; 0 for numbers.
          outputs: the number of outputs that the trees take turns at.
          trees: the number of trees.
          nodes: the number of nodes in all trees.
          words: the number of words in all bitmaps.
          depth: the depth of the deepest tree.
          leaves: the number of leaves that have several values; 0 if leaves have one value.
          width: the number of values of a leaf.
          options: Keras's options.
        """
        # A config that Keras has saved contains these options, too.
        super().__init__(**{"trainable": False, "dtype": tf.float32, **options})
        self._codes, self._outputs = list(codes), outputs
        self._trees, self._nodes, self._words, self._depth = trees, nodes, words, depth
        self._leaves, self._width = leaves, width

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {
            **super().get_config(),
            "codes": self._codes,
            "outputs": self._outputs,
            "trees": self._trees,
            "nodes": self._nodes,
            "words": self._words,
            "depth": self._depth,
            "leaves": self._leaves,
            "width": self._width,
        }

    def build(self, input_shape: Sequence[tf.TensorShape]) -> None:
        """Creates the weights, filled with zeros."""

        def add(name: str, size: int, dtype: tf.DType) -> tf.Variable:
            return self.add_weight(name, [size], dtype, "zeros", trainable=False)

        shapes = map(tf.TensorShape, as_list(input_shape))
        columns = sum(shape[1:].num_elements() for shape in shapes)
        self.means = add("means", columns, tf.float32)
        self.bias = add("bias", self._outputs * self._width, tf.float32)
        self.roots = add("roots", self._trees, tf.int32)
        self.threshold = add("threshold", self._nodes, tf.float32)
        # A node's entries are side by side, as a single fetch takes half the time.
        self.nodes = self.add_weight(
            "nodes", [self._nodes, len(NODE)], tf.int32, "zeros", trainable=False
        )
        self.value = add("value", self._nodes, tf.int32 if self._leaves else tf.float32)
        if self._words:
            self.words = add("words", self._words, tf.float32)
        if self._leaves:
            self.leaves = self.add_weight(
                "leaves", [self._leaves, self._width], tf.float32, "zeros", trainable=False
            )
        super().build(input_shape)

    def fill(self, forest: Forest) -> None:
        """Copies the trees into the weights."""
        names = ["means", "bias", "roots", "threshold", "value"]
        for name in [*names, "words"] if self._words else names:
            weight = getattr(self, name)
            weight.assign(np.asarray(getattr(forest, name), weight.dtype.as_numpy_dtype))
        if self._leaves:
            self.leaves.assign(np.concatenate(forest.leaves))
        entries = [np.asarray(getattr(forest, name), np.int32) for name in NODE]
        self.nodes.assign(np.stack(entries, 1))

    def call(self, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the sums of the trees' leaves plus the bias."""
        values = tf.concat(list(map(flatten, as_list(inputs), self._codes)), 1)
        values = tf.where(tf.math.is_nan(values), self.means, values)
        slice_size = max(1, MAX_PARALLEL_TREES // (self._outputs * self._width)) * self._outputs
        if self._trees <= slice_size:
            return self.bias + self._walk(values, self.roots)
        _, total = tf.while_loop(
            lambda begin, _: begin < self._trees,
            lambda begin, total: (
                begin + slice_size,
                total + self._walk(values, self.roots[begin : begin + slice_size]),
            ),
            (0, tf.zeros([tf.shape(values)[0], self._outputs * self._width])),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([None, self._outputs * self._width]),
            ),
            parallel_iterations=1,
        )
        return self.bias + total

    @tf.autograph.experimental.do_not_convert
    def _walk(self, values: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
        """Returns the sums of some trees' leaves for numbers and codes, [batch, columns]."""
        rows, width = tf.shape(values)[0], self.means.shape[0]
        first = tf.range(rows)[:, tf.newaxis] * width
        values = tf.reshape(values, [-1])
        nodes = tf.tile(roots[tf.newaxis], [rows, 1])
        for _ in range(self._depth):
            column, first_child, bitmap = tf.unstack(tf.gather(self.nodes, nodes), axis=-1)
            column_values = tf.gather(values, first + column)
            holds = column_values >= tf.gather(self.threshold, nodes)
            if self._words:
                holds |= self._in_bitmap(column_values, bitmap)
            nodes = first_child + tf.cast(holds, tf.int32)
        leaves = tf.gather(self.value, nodes)
        if self._leaves:
            return tf.reduce_sum(tf.gather(self.leaves, leaves), 1)
        leaves = tf.reshape(leaves, [rows, tf.size(roots) // self._outputs, self._outputs])
        return tf.reduce_sum(leaves, 1)

    def _in_bitmap(self, column_values: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
        """Returns whether a category is in the bitmap at an index; False for the index -1.

        In exact float32, as ONNX and LiteRT lack operations on the bits of whole numbers.
        """
        has_bitmap = begin >= 0
        code = tf.where(has_bitmap, column_values, 0.0)
        place = tf.floor(code / BITS)
        word = tf.gather(self.words, tf.maximum(begin, 0) + tf.cast(place, tf.int32))
        shift = tf.cast(code - place * BITS, tf.int32)
        shifted = tf.floor(word * tf.gather(tf.constant(HALVES, tf.float32), shift))
        return has_bitmap & (shifted - 2 * tf.floor(shifted / 2) > 0.5)


def build_model(problem: Problem, forest: Forest) -> tf_keras.Model:
    """Returns the forest as a model from transformed features to the output of the task."""
    inputs = problem.make_inputs()
    return tf_keras.Model(inputs, walk_trees(problem, forest, inputs, "forest"), name="trees")


def walk_trees(
    problem: Problem, forest: Forest, inputs: Mapping[str, tf.Tensor], name: str
) -> tf.Tensor:
    """Returns the task's outputs by a forest, [batch, units], for the features in its columns.

    Args:
      problem: the features and the label.
      forest: the forest.
      inputs: the Keras inputs by feature.
      name: the name of the layer, which is changed if a column has it.
    """
    codes = {column.feature: column.codes for column in forest.columns}
    features = [feature.name for feature in problem.features if feature.name in codes]
    layer = Walk(
        [codes[feature] for feature in features],
        forest.outputs,
        len(forest.roots),
        len(forest.first_child),
        len(forest.words),
        forest.depth,
        sum(map(len, forest.leaves)),
        len(forest.bias) // forest.outputs,
        name=problem.layer_name(name),
    )
    output = layer([inputs[feature] for feature in features])
    layer.fill(forest)
    if forest.is_averaged and problem.task.is_classification:
        return output
    return problem.make_activation()(output)


def as_list(inputs: Any) -> list[Any]:
    """Returns tensors or their shapes as a list; Keras loads a list of one tensor as the tensor."""
    return list(inputs) if isinstance(inputs, list | tuple) else [inputs]


def flatten(values: tf.Tensor, codes: int) -> tf.Tensor:
    """Returns a feature's columns, [batch, columns] float32, as `split_columns` returns them."""
    if codes:
        values = values + 1
        values = tf.where((values < 0) | (values >= codes), tf.zeros_like(values), values)
    return tf.reshape(tf.cast(values, tf.float32), [-1, values.shape[1:].num_elements()])
