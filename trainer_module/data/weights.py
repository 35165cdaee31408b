"""How much each example counts in the loss: by its class, by a column of the data, or by both."""

from __future__ import annotations

import difflib
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from trainer_module.errors import TrainingError

BALANCED = "balanced"
RARE = 0.2
"""A class is worth a note that has less than this of the examples that an even share would be."""


@dataclass(frozen=True)
class Weighting:
    """How much each example counts in a loss: over the train split 1 in the mean.

    So the unit of a weight decides neither how far the steps of a network go, nor what the leaves
    of a tree take for few examples.
    """

    by_class: tuple[float, ...] = ()
    """By index; empty if they have no weights."""
    scale: float = 1.0
    """What the product of a column's and a class's weight is multiplied by."""

    @classmethod
    def over(cls, by_class: Sequence[float], sums: Sequence[float], examples: int) -> Weighting:
        """The weighting under which the mean is 1.

        Args:
          by_class: the weight of each class; empty if they have none.
          sums: what the weights of the data add up to, of each class or of all numbers; that is
              their count where they have none.
          examples: of the train split.

        Raises:
          TrainingError: no example counts.
        """
        total = sum(map(operator.mul, by_class, sums)) if by_class else sum(sums)
        if not total:
            raise TrainingError(
                "train.class_weights are 0 for every class of the train split, of which nothing "
                "is learnt then; give one of them a weight above 0."
            )
        return cls(tuple(by_class), examples / total)

    def weigh(self, label: tf.Tensor, column: tf.Tensor | None) -> tf.Tensor | None:
        """The weights of a batch, [batch] float32; None where all examples count alike.

        Args:
          label: [batch, 1]; of classes their indices.
          column: weights of the data, [batch, 1], if there are any.
        """
        weights = None if column is None else tf.reshape(column, [-1]) * self.scale
        if self.by_class:
            scale = self.scale if weights is None else 1.0
            by_class = tf.constant(self.by_class, tf.float32) * scale
            of_label = tf.gather(by_class, tf.reshape(label, [-1]))
            weights = of_label if weights is None else weights * of_label
        return weights


ALIKE = Weighting()
"""All examples count once."""


def weights_by_class(
    given: str | Mapping[str, float] | None,
    label: str,
    classes: Sequence[str],
    counts: Sequence[float],
) -> tuple[float, ...]:
    """The weight of each class by index; none where all classes count alike.

    Args:
      given: by name, where a class that is not named counts once; or `balanced`: as often as makes
          the classes equal, and the mean over all examples 1.
      label: the label's column, for messages.
      classes: their names by index.
      counts: examples of each in the train split, or what those of the data's weights add up to.

    Raises:
      TrainingError: a class is named that the label has not got.
    """
    if not given:
        return ()
    if isinstance(given, str):
        found = itertools.zip_longest(classes, counts, fillvalue=0.0)
        return tuple(sum(counts) / (len(classes) * n) if n else 1.0 for _, n in found)
    for name in given:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(classes)}."
            raise TrainingError(
                f"train.class_weights names {name!r}, which is no class of {label!r}; {hint}"
            )
    return tuple(given.get(name, 1.0) for name in classes)


def describe_imbalance(label: str, classes: Sequence[str], counts: Sequence[int]) -> str | None:
    """A line on the smallest class where it is rare, with the metrics that tell more of it.

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
        f"({count:,} of {sum(counts):,} examples): accuracy says little of it; "
        "log_loss and balanced_accuracy say more"
    )
