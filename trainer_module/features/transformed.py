"""The description of an input of a model in Transform's output."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field

import tensorflow as tf

from trainer_module.features import feature_class


def free_name(name: str, taken: Collection[str]) -> str:
    """Returns `name`, or a longer name if an input has it: each name occurs once in a model."""
    while name in taken:
        name = f"{name}_layer"
    return name


@dataclass(frozen=True)
class TransformedFeature:
    """A transformed feature, which is an input of a model."""

    name: str
    kind: str
    """The feature type: a name in FEATURES, or the import path of the user's class."""
    shape: tuple[int, ...]
    """The shape of one example, without the batch dimension."""
    vocabulary_size: int = 0
    """The number of indices, including out-of-vocabulary buckets, or 0 if the values are not
    indices.
    """
    many: bool = False
    """Whether a row holds several indices, padded with index 0."""
    encoding: str | None = None
    """The encoding in the config, such as `embedding` or `one_hot`, or None for the model's
    default.
    """
    indices_of: str = ""
    """The result of `BaseFeature.indices_of`."""
    places: tuple[str, ...] = ()
    """The names of the numbers of an example, or () if they have no names."""
    taken: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """The names of all inputs of the model, which its other layers must not have."""

    @property
    def dtype(self) -> tf.DType:
        """The data type: int64 for categories and tokens, float32 for numbers, images and bags."""
        return tf.float32 if self.is_bag else tf.as_dtype(feature_class(self.kind).dtype)

    @property
    def is_bag(self) -> bool:
        """Whether an example is a bag: a list of pairs of a term's index and its weight."""
        return self.kind == "text" and len(self.shape) == 2

    def layer_name(self, role: str) -> str:
        """Returns a valid name for a layer of the feature, which no input has.

        Args:
          role: the purpose of the layer, which becomes the suffix of the name.
        """
        name = self.name
        if not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.-]*", name):
            safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
            # The hash distinguishes columns whose names differ only in replaced characters.
            name = f"column_{safe}_{zlib.crc32(name.encode()):08x}"
        return free_name(f"{name}_{role}", self.taken)

    @property
    def bytes_per_example(self) -> int:
        """The memory in bytes of one example as a dense tensor."""
        return self.dtype.size * math.prod(self.shape)
