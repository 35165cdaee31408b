"""Images: decoded and resized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PositiveInt

from trainer_module.errors import DataError
from trainer_module.features.base import BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor


class ImageFeature(BaseFeature):
    """An encoded PNG, JPEG or BMP: decoded, resized and scaled to 0..1."""

    type: Literal["image"]
    height: PositiveInt
    """Pixels."""
    width: PositiveInt
    """Pixels."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for RGB."""

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """[batch, height, width, channels] float32 each."""
        return {name: decode_images(name, columns[name], f) for name, f in features.items()}

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Whatever has a height, a width and channels."""
        del indices
        return dtype == cls.dtype and len(shape) == 3


def decode_images(name: str, column: AnyTensor, feature: ImageFeature) -> tf.Tensor:
    """[batch, height, width, channels] float32 in 0..1.

    Raises:
      DataError: if the column holds numbers.
    """
    import tensorflow as tf

    from trainer_module.features.raw_columns import dense_strings

    if column.dtype != tf.string:
        raise DataError(
            f"column {name!r} holds numbers; type: image needs encoded PNG, JPEG or BMP bytes."
        )

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(
            encoded, feature.channels, dtype=tf.float32, expand_animations=False
        )
        return tf.image.resize(image, [feature.height, feature.width])

    shape = [feature.height, feature.width, feature.channels]
    encoded = tf.reshape(dense_strings(column), [-1])
    return tf.map_fn(decode, encoded, fn_output_signature=tf.TensorSpec(shape, tf.float32))
