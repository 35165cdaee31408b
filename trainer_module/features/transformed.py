"""An input of a model, as Transform's output describes it."""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass

import tensorflow as tf

from trainer_module.features import feature_class


@dataclass(frozen=True)
class TransformedFeature:
    """An input of a model: a transformed feature with its shape and vocabulary size."""

    name: str
    kind: str
    """The feature type, a name in `trainer_module.features.FEATURES`."""
    shape: tuple[int, ...]
    """The shape of one example, without the batch."""
    vocabulary_size: int = 0
    """The number of indices, including out-of-vocabulary buckets; 0 without a vocabulary."""
    many: bool = False
    """Whether a row holds several values of one feature, padded with index 0."""
    encoding: str | None = None
    """The encoding of indices in the config, such as embedding or one_hot; None: the model decides.
    """
    indices_of: str = ""
    """A description of indices without a vocabulary, such as the buckets of a hash."""
    places: tuple[str, ...] = ()
    """The names of the numbers of an example; empty if they have none."""

    @property
    def dtype(self) -> tf.DType:
        """The dtype: int64 for categories and tokens, float32 for numbers, images and bags of
        terms.
        """
        return tf.float32 if self.is_bag else tf.as_dtype(feature_class(self.kind).dtype)

    @property
    def is_bag(self) -> bool:
        """Whether an example consists of pairs of a term's index and its weight."""
        return self.kind == "text" and len(self.shape) == 2

    def layer_name(self, role: str) -> str:
        """Returns a layer name that TensorFlow allows, whatever the name of the column."""
        name = self.name
        if not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.-]*", name):
            safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
            # The hash distinguishes columns whose names differ only in replaced characters.
            name = f"column_{safe}_{zlib.crc32(name.encode()):08x}"
        return f"{name}_{role}"

    @property
    def bytes_per_example(self) -> int:
        """The memory in bytes of one example as a dense tensor."""
        return self.dtype.size * math.prod(self.shape)
