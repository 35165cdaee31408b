"""How much each example counts in the loss: by its class, by a column of the data, or by both."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import tensorflow as tf

from trainer_module.errors import TrainingError

BALANCED = "balanced"
RARE = 0.2
"""A class is worth a note that has less than this of the examples that an even share would be."""


def weights_by_class(
    given: str | Mapping[str, float] | None,
    label: str,
    classes: Sequence[str],
    counts: Sequence[int],
) -> tuple[float, ...]:
    """The weight of each class by index; none where all classes count alike.

    Args:
      given: by name, where a class that is not named counts once; or `balanced`: as often as makes
          the classes equal, and the mean over all examples 1.
      label: the label's column, for messages.
      classes: their names by index.
      counts: examples of each in the train split.

    Raises:
      TrainingError: a class is named that the label has not got.
    """
    if not given:
        return ()
    if isinstance(given, str):
        total = sum(counts)
        return tuple(total / (len(classes) * max(1, count)) for count in counts)
    for name in given:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(classes)}."
            raise TrainingError(
                f"train.class_weights names {name!r}, which is no class of {label!r}; {hint}"
            )
    return tuple(given.get(name, 1.0) for name in classes)


def describe_imbalance(label: str, classes: Sequence[str], counts: Sequence[int]) -> str | None:
    """A line on the smallest class where it is rare, with the one that would weigh it.

    Args:
      label: the label's column.
      classes: their names by index; none if the label is a number.
      counts: examples of each in the train split.
    """
    if not classes or not sum(counts):
        return None
    count, name = min(zip(counts, classes, strict=False))
    if count * len(classes) >= RARE * sum(counts):
        return None
    return (
        f"class {name!r} of label {label!r} is {count / sum(counts):.2g} of the train split "
        f"({count:,} of {sum(counts):,} examples): `train: {{class_weights: {BALANCED}}}` would "
        "make all classes count alike"
    )


def weigh(
    label: tf.Tensor, by_class: Sequence[float], column: tf.Tensor | None
) -> tf.Tensor | None:
    """The weights of a batch, [batch] float32; None where all examples count alike.

    Args:
      label: [batch, 1]; of classes their indices.
      by_class: the weight of each class; empty if they have none.
      column: weights of the data, [batch, 1], if there are any.
    """
    weights = None if column is None else tf.reshape(column, [-1])
    if by_class:
        of_label = tf.gather(tf.constant(by_class, tf.float32), tf.reshape(label, [-1]))
        weights = of_label if weights is None else weights * of_label
    return weights
