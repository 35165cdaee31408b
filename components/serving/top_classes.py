"""The most probable classes of predictions, for models with many classes."""

from __future__ import annotations

import numpy as np

from components.serving.requests import Arrays
from trainer_module.errors import DataError, enumerate_names

CLASSES, SCORES = "classes", "scores"
"""The outputs with the names and the probabilities of all classes."""


def keep_top_classes(outputs: Arrays, top_k: int | None) -> Arrays:
    """Returns the outputs with only the most probable classes of each row.

    Args:
      outputs: the outputs by name: `classes` and `scores` have the shape [rows, classes].
      top_k: the number of classes to keep, or None to return the outputs unchanged.

    Returns:
      The outputs, in which `classes` and `scores` have the shape [rows, min(top_k, classes)]. The
      largest score comes first, and equal scores keep the order of the classes.

    Raises:
      DataError: the model does not predict classes.
    """
    if top_k is None:
        return outputs
    if not {CLASSES, SCORES} <= outputs.keys():
        raise DataError(
            "`top_k` needs a model that predicts classes, and this model returns"
            f" {enumerate_names(sorted(outputs), 'and')}: leave `top_k` (--top-k) out."
        )
    best = np.argsort(-outputs[SCORES], axis=1, kind="stable")[:, :top_k]
    kept = {name: np.take_along_axis(outputs[name], best, 1) for name in (CLASSES, SCORES)}
    return outputs | kept
