"""The feature type `image`, which decodes and resizes images."""

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
    """A picture in the format PNG, JPEG or BMP. It is decoded, drawn on white if it is transparent,
    resized, and scaled to 0..1.
    """

    type: Literal["image"]
    height: PositiveInt | None = None
    """The height in pixels. The default height and width are the medians of the pictures from which
    the schema was inferred, scaled down so that the longer side has at most 224 pixels."""
    width: PositiveInt | None = None
    """The width in pixels."""
    channels: Literal[1, 3] | None = None
    """The number of channels: 1 for grey, 3 for RGB. Default: 1 if the config gives no size and all
    pictures from which the schema was inferred are grey, otherwise 3."""
    origin: Literal["bytes", "path"] = Field(default="bytes", alias="from")
    """The content of the column: `bytes` are encoded pictures, `path` are the paths of files with
    pictures. The files are read together with the data; requests always contain pictures."""
    folder: str | None = None
    """The folder to which the paths of `from: path` are relative; paths to other folders are
    errors. Default: the folder of the file that contains the paths."""

    @property
    def size(self) -> tuple[int, int] | None:
        """The height and the width, or None if the config does not give them."""
        return (self.height, self.width) if self.height and self.width else None

    @model_validator(mode="after")
    def _has_both_sides(self) -> ImageFeature:
        if (self.height is None) != (self.width is None):
            raise ValueError(
                "found only one of height and width; give both, or leave out both to take the size "
                "from the pictures"
            )
        if self.size and self.channels is None:
            # The class is frozen: a plain assignment would raise an error.
            object.__setattr__(self, "channels", 3)
        return self

    @model_validator(mode="after")
    def _check_folder(self) -> ImageFeature:
        if self.folder is not None and self.origin != "path":
            raise ValueError(
                "folder applies only to columns of paths; add `from: path`, or remove folder"
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
        """Returns whether a tensor is float32 with a height, a width and channels."""
        del indices
        return dtype == cls.dtype and len(shape) == 3


def decode_images(name: str, column: AnyTensor, feature: ImageFeature) -> tf.Tensor:
    """Returns the pixels of a column's images, [batch, height, width, channels] float32 in 0..1.

    Raises:
      DataError: the column holds numbers.
    """
    import tensorflow as tf

    from trainer_module.features.raw_columns import dense_strings

    if column.dtype != tf.string:
        raise DataError(
            f"column {name!r} holds numbers; type: image reads encoded PNG, JPEG or BMP bytes."
        )

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        image = _draw_on_white(decode_image(encoded), feature.channels or 3)
        return tf.image.resize(image, [feature.height, feature.width])

    shape = [feature.height, feature.width, feature.channels or 3]
    encoded = tf.reshape(dense_strings(column), [-1])
    return tf.map_fn(decode, encoded, fn_output_signature=tf.TensorSpec(shape, tf.float32))


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the pixels of an image, [height, width, channels] float32 in 0..1.

    The result has the 1 to 4 channels of the file; an alpha channel is the last channel. With a
    fixed number of channels, TensorFlow would drop the alpha channel, or reject a JPEG, which has
    no alpha channel.
    """
    import tensorflow as tf

    image = tf.io.decode_image(encoded, dtype=tf.float32, expand_animations=False)
    return tf.ensure_shape(image, [None, None, None])


def _draw_on_white(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns an image on a white background, in grey (1 channel) or RGB (3 channels)."""
    import tensorflow as tf

    file_channels = tf.shape(image)[-1]
    has_alpha = file_channels % 2 == 0
    alpha = tf.where(has_alpha, image[..., -1:], 1.0)
    colours = image[..., : file_channels - tf.cast(has_alpha, tf.int32)]
    colours = colours * alpha + (1.0 - alpha)
    rgb = tf.broadcast_to(colours, [*tf.unstack(tf.shape(image)[:2]), 3])
    return rgb if channels == 3 else tf.tensordot(rgb, [[0.299], [0.587], [0.114]], 1)
