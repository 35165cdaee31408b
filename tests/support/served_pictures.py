"""A model of pictures, as small as can be: it answers with the mean of a picture's pixels."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import tensorflow as tf
from PIL import Image

from trainer_module.export.interface import INTERFACE_FILE, ModelInterface, RawColumn
from trainer_module.features.image import ImageFeature, decode_images

INTERFACE = ModelInterface(
    (RawColumn("photo", "photo", "string", False, 1, "bytes"),), "shade", "string", "multiclass"
)


class _Mean(tf.Module):
    feature = ImageFeature(type="image", height=4, width=4)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="photo")])
    def raw(self, photo: tf.Tensor) -> dict[str, tf.Tensor]:
        pixels = decode_images("photo", photo, self.feature)
        return {"value": tf.reduce_mean(pixels, axis=[1, 2, 3])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def default(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        spec = {"photo": tf.io.FixedLenFeature([], tf.string)}
        return self.raw(tf.io.parse_example(examples, spec)["photo"])


def push_pictures(serving: Path) -> Path:
    """Writes version 1 of the model."""
    model, version = _Mean(), serving / "1"
    tf.saved_model.save(
        model,
        str(version),
        signatures={"serving_raw": model.raw, "serving_default": model.default},
    )
    (version / INTERFACE_FILE).parent.mkdir(exist_ok=True)
    (version / INTERFACE_FILE).write_text(INTERFACE.to_json())
    return version


def encode(kind: str = "PNG", size: tuple[int, int] = (4, 4), **options: object) -> bytes:
    """A white picture."""
    encoded = io.BytesIO()
    Image.new("RGB", size, "white").save(encoded, kind, **options)
    return encoded.getvalue()


def png(width: int, height: int, *chunks: bytes) -> bytes:
    """A black PNG of grey pixels, which deflate makes a thousandth of."""
    rows = zlib.compressobj(9)
    packed = b"".join(rows.compress(bytes(width + 1)) for _ in range(height)) + rows.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    found = [chunk(b"IHDR", header), *chunks, chunk(b"IDAT", packed), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(found)


def chunk(name: bytes, content: bytes) -> bytes:
    """One of a PNG."""
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def top_down_bmp(width: int = 4, height: int = 4) -> bytes:
    """A white BMP with its first row first, which TensorFlow dies of."""
    pixels = b"\xff" * (-(-width * 3 // 4) * 4 * height)
    header = struct.pack("<IiiHHIIIIII", 40, width, -height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, 54) + header + pixels


def example(photo: bytes) -> bytes:
    """A serialised tf.Example."""
    values = tf.train.Feature(bytes_list=tf.train.BytesList(value=[photo]))
    return tf.train.Example(
        features=tf.train.Features(feature={"photo": values})
    ).SerializeToString()
