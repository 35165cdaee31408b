"""The feature type of images, which are decoded and resized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from trainer_module.errors import DataError
from trainer_module.features.base import BaseFeature

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor


class ImageFeature(BaseFeature):
    """An encoded PNG, JPEG or BMP: decoded, composed on white, resized and scaled to 0..1."""

    type: Literal["image"]
    height: PositiveInt | None = None
    """The height in pixels. Default of both sides: the median height and width of the first data's
    pictures, scaled down until the longer side has at most 224 pixels."""
    width: PositiveInt | None = None
    """The width in pixels."""
    channels: Literal[1, 3] | None = None
    """The channels: 1 for grey, 3 for RGB. Default: 3 if the size is given, otherwise 1 if all of
    the first data's pictures are grey."""
    origin: Literal["bytes", "path"] = Field(default="bytes", alias="from")
    """The content of the column: encoded pictures, or paths of files with them. The files are read
    with the data, so that requests send pictures, not paths."""
    folder: str | None = None
    """The folder that paths start from, with `from: path`, and that no path may leave. Default: the
    folder of the file that holds the paths."""

    @property
    def size(self) -> tuple[int, int] | None:
        """The height and the width; None if they follow from the data."""
        return (self.height, self.width) if self.height and self.width else None

    @model_validator(mode="after")
    def _has_both_sides(self) -> ImageFeature:
        if (self.height is None) != (self.width is None):
            raise ValueError(
                "height and width go together; give both, or leave out both: then the size follows "
                "from the pictures"
            )
        if self.size and self.channels is None:
            # The model is frozen, so that plain assignment raises an error.
            object.__setattr__(self, "channels", 3)
        return self

    @model_validator(mode="after")
    def _folder_is_read(self) -> ImageFeature:
        if self.folder is not None and self.origin != "path":
            raise ValueError(
                "folder applies to columns of paths; add `from: path`, or remove folder"
            )
        return self

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the pixels, [batch, height, width, channels] float32 each."""
        return {name: decode_images(name, columns[name], f) for name, f in features.items()}

    @classmethod
    def matches(cls, dtype: str, shape: tuple[int, ...], indices: int) -> bool:
        """Returns whether a tensor has a height, a width and channels."""
        del indices
        return dtype == cls.dtype and len(shape) == 3


def decode_images(name: str, column: AnyTensor, feature: ImageFeature) -> tf.Tensor:
    """Returns the pixels of a column's images, [batch, height, width, channels] float32 in 0..1.

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
        image = _mix(decode_image(encoded), feature.channels or 3)
        return tf.image.resize(image, [feature.height, feature.width])

    shape = [feature.height, feature.width, feature.channels or 3]
    encoded = tf.reshape(dense_strings(column), [-1])
    return tf.map_fn(decode, encoded, fn_output_signature=tf.TensorSpec(shape, tf.float32))


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the pixels of an image, [height, width, 1 to 4] float32 in 0..1, with alpha as the
    last channel.

    The channels are the file's own: for a fixed number of channels, TensorFlow would drop the
    alpha, or reject a JPEG without one.
    """
    import tensorflow as tf

    image = tf.io.decode_image(encoded, dtype=tf.float32, expand_animations=False)
    return tf.ensure_shape(image, [None, None, None])


def _mix(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns an image composed on white, as grey (1) or RGB (3)."""
    import tensorflow as tf

    found = tf.shape(image)[-1]
    has_alpha = found % 2 == 0
    alpha = tf.where(has_alpha, image[..., -1:], 1.0)
    colours = image[..., : found - tf.cast(has_alpha, tf.int32)]
    colours = colours * alpha + (1.0 - alpha)
    rgb = tf.broadcast_to(colours, [*tf.unstack(tf.shape(image)[:2]), 3])
    return rgb if channels == 3 else tf.tensordot(rgb, [[0.299], [0.587], [0.114]], 1)
