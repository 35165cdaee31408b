"""The classes of the label.

They need an order that stays from one retraining to the next, and in which the 1 of a 0/1 label is
the positive class; TFT's own vocabularies are ordered by frequency alone.
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.vocabularies.analysis import compute_vocabularies
from trainer_module.vocabularies.orders import Order

CLASSES = "label_classes"
"""The name under which TFTransformOutput knows the classes."""


def compute_and_apply_classes(label: tf.Tensor, order: Order) -> tf.Tensor:
    """Maps a label to the index of its class among the classes of the train split.

    Args:
      label: string, any shape; the empty string stands for a missing label.
      order: such as `ClassOrder`.

    Returns:
      int64, the shape of `label`; -1 for a label that is missing or not in the train split.

    Raises:
      DataError: while analysing, what the order raises.
    """
    paths = compute_vocabularies({CLASSES: label}, {CLASSES: order})
    return tft.apply_vocabulary(label, paths[CLASSES], default_value=-1)


def read_classes(tft_output: tft.TFTransformOutput) -> tuple[str, ...]:
    """The classes that `compute_and_apply_classes` found, by index; none if it was not used."""
    if tft_output.vocabulary_file_by_name(CLASSES) is None:
        return ()
    classes = tft_output.vocabulary_by_name(CLASSES)
    return tuple(c.decode("utf-8", errors="backslashreplace") for c in classes)
