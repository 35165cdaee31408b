"""Images: decoded and resized."""

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
    """An encoded PNG, JPEG or BMP: decoded, laid on white, resized and scaled to 0..1."""

    type: Literal["image"]
    height: PositiveInt | None = None
    """Pixels. Default of both: the usual size of the first data's pictures, at most 224 pixels."""
    width: PositiveInt | None = None
    """Pixels."""
    channels: Literal[1, 3] | None = None
    """1 for grey, 3 for RGB. Default: 3 for a size that is given, else 1 where all of the first
    data's pictures are grey."""
    origin: Literal["bytes", "path"] = Field(default="bytes", alias="from")
    """What the column holds: encoded pictures, or paths of their files. Those are read with the
    data, so that who asks the model sends pictures, and no paths."""
    folder: str | None = None
    """With `from: path`: the folder that the paths begin in, and that none of them leaves. Default:
    that of the file in which they are written."""

    @property
    def size(self) -> tuple[int, int] | None:
        """The height and the width; None where they follow from the data."""
        return (self.height, self.width) if self.height and self.width else None

    @model_validator(mode="after")
    def _has_both_sides(self) -> ImageFeature:
        if (self.height is None) != (self.width is None):
            raise ValueError(
                "height and width go together; give both, or leave out both: then the size follows "
                "from the pictures"
            )
        if self.size and self.channels is None:
            # Values do not change any more once this is over.
            object.__setattr__(self, "channels", 3)
        return self

    @model_validator(mode="after")
    def _folder_is_read(self) -> ImageFeature:
        if self.folder is not None and self.origin != "path":
            raise ValueError("folder is for columns of paths; add from: path, or leave it out")
        return self

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
        image = _mix(decode_image(encoded), feature.channels or 3)
        return tf.image.resize(image, [feature.height, feature.width])

    shape = [feature.height, feature.width, feature.channels or 3]
    encoded = tf.reshape(dense_strings(column), [-1])
    return tf.map_fn(decode, encoded, fn_output_signature=tf.TensorSpec(shape, tf.float32))


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """[height, width, 1 to 4] float32 in 0..1: grey or RGB, with alpha last where there is one.

    The channels are the file's own: TensorFlow drops an alpha that is not asked for, and refuses
    one that is asked for of a JPEG.
    """
    import tensorflow as tf

    image = tf.io.decode_image(encoded, dtype=tf.float32, expand_animations=False)
    return tf.ensure_shape(image, [None, None, None])


def _mix(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Lays a decoded image on white, and makes it grey (1) or RGB (3)."""
    import tensorflow as tf

    found = tf.shape(image)[-1]
    has_alpha = found % 2 == 0
    alpha = tf.where(has_alpha, image[..., -1:], 1.0)
    colours = image[..., : found - tf.cast(has_alpha, tf.int32)]
    colours = colours * alpha + (1.0 - alpha)
    rgb = tf.broadcast_to(colours, [*tf.unstack(tf.shape(image)[:2]), 3])
    return rgb if channels == 3 else tf.tensordot(rgb, [[0.299], [0.587], [0.114]], 1)
