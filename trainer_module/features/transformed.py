"""One input of a model, as Transform's output describes it."""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass

import tensorflow as tf

from trainer_module.features import feature_class


@dataclass(frozen=True)
class TransformedFeature:
    """One input of the model."""

    name: str
    kind: str
    """Its type, a name in `trainer_module.features.FEATURES`."""
    shape: tuple[int, ...]
    """Of one example, without the batch."""
    vocabulary_size: int = 0
    """How many indices there are, out-of-vocabulary buckets included; 0 without a vocabulary."""
    many: bool = False
    """Whether its places are several values of a row rather than one each; index 0 is none."""
    encoding: str | None = None
    """How the config wants indices encoded: embedding or one_hot; None: as the model has it."""
    indices_of: str = ""
    """What indices count where their number alone tells, such as the buckets of a hash."""
    places: tuple[str, ...] = ()
    """What each number of an example is called; none where they count up."""

    @property
    def dtype(self) -> tf.DType:
        """int64 for categorical and tokens, float32 for numeric, image and bags of terms."""
        return tf.float32 if self.is_bag else tf.as_dtype(feature_class(self.kind).dtype)

    @property
    def is_bag(self) -> bool:
        """Whether an example is pairs of a term's index and its weight."""
        return self.kind == "text" and len(self.shape) == 2

    def layer_name(self, role: str) -> str:
        """Returns a name that TensorFlow allows for a layer, whatever the column is called."""
        name = self.name
        if not re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.-]*", name):
            safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
            # The hash keeps columns apart that differ in the replaced characters alone.
            name = f"column_{safe}_{zlib.crc32(name.encode()):08x}"
        return f"{name}_{role}"

    @property
    def bytes_per_example(self) -> int:
        """Memory that one example takes as a dense tensor."""
        return self.dtype.size * math.prod(self.shape)
