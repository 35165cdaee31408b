"""Representative examples: what variants are calibrated, checked and measured by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tfx import types

from components.examples_reader import read_spread
from components.split_files import split_files
from trainer_module.errors import TrainingError
from trainer_module.export.interface import ModelInterface

MOST_ROWS = 512
"""Examples that say enough of the range of each number."""
MOST_BYTES = 64 << 20
"""Of them in memory: of large pictures there are fewer."""


def read_sample(
    examples: Sequence[types.Artifact], split: str, transform_graph: str, interface: ModelInterface
) -> dict[str, np.ndarray]:
    """Transformed examples of a split by the names of the model's features, [rows, ...] each.

    Args:
      examples: transformed, of one or several spans.
      split: whose examples are read.
      transform_graph: the folder of the transform graph, for their types.
      interface: of the model, for the features that it asks for.

    Raises:
      TrainingError: there are no examples.
    """
    files = sorted(split_files(examples, split))
    spec = tft.TFTransformOutput(transform_graph).transformed_feature_spec()
    wanted = {feature.name: spec[feature.name] for feature in interface.features}
    batch = [record for part in read_spread(files, _rows(interface)) for record in part]
    if not batch:
        raise TrainingError(
            f"the split {split!r} has no example, by which variants are calibrated and checked."
        )
    parsed = tf.io.parse_example(tf.constant(batch), wanted)
    return {name: tensor.numpy() for name, tensor in parsed.items()}


def _rows(interface: ModelInterface) -> int:
    of_one = sum(
        int(np.prod(feature.shape)) * np.dtype(feature.dtype).itemsize
        for feature in interface.features
    )
    return max(1, min(MOST_ROWS, MOST_BYTES // max(of_one, 1)))
