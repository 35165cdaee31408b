"""Pictures of every kind are decoded to their pixels, and no file is left out without a note."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from components.example_gen.notes import read_notes
from components.example_gen.sources.pictures import make_decodable
from trainer_module.errors import DataError
from trainer_module.features.image import ImageFeature, decode_images

HEIGHT, WIDTH = 16, 24
PIXELS = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
PIXELS[:8, :16], PIXELS[8:, :8] = [200, 30, 90], [10, 240, 60]
ALPHA = np.zeros((HEIGHT, WIDTH), np.uint8)
ALPHA[:, 8:], ALPHA[8:, 16:] = 255, 128
COLOURS = Image.fromarray(PIXELS)
GREYS = COLOURS.convert("L")
PALETTE = COLOURS.quantize(8)
DEEP = Image.fromarray(np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 150)
TURNED = Image.Exif()
TURNED[0x0112] = 6


def with_alpha(image: Image.Image) -> Image.Image:
    """The picture, seen through."""
    image = image.copy()
    image.putalpha(Image.fromarray(ALPHA))
    return image


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    """An image file's bytes."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def on_white(colour: np.ndarray) -> np.ndarray:
    """The colours without one of them."""
    return np.where((colour == PIXELS).all(-1, keepdims=True), 255, PIXELS)


ON_WHITE = PIXELS * (ALPHA / 255)[..., None] + 255 - ALPHA[..., None]
FIRST = PIXELS[0, 0]
OTHER_FRAMES = {"save_all": True, "append_images": [COLOURS.rotate(180)]}
BGRX = encode(with_alpha(COLOURS), "BMP").replace(bytes([0x80]), b"\0").replace(b"\xff", b"\0")

KEPT = {
    "PNG": (encode(COLOURS, "PNG"), PIXELS),
    "grey PNG": (encode(GREYS, "PNG"), GREYS),
    "PNG of a palette": (encode(PALETTE, "PNG"), PIXELS),
    "PNG of a bit": (encode(COLOURS.convert("1"), "PNG"), COLOURS.convert("1").convert("L")),
    "PNG of 16 bits": (encode(DEEP, "PNG"), np.asarray(DEEP) / 257),
    "PNG with alpha": (encode(with_alpha(COLOURS), "PNG"), ON_WHITE),
    "grey PNG with alpha": (
        encode(with_alpha(GREYS), "PNG"),
        np.asarray(GREYS) * (ALPHA / 255.0) + 255 - ALPHA,
    ),
    "PNG of a palette with a hole": (
        encode(PALETTE, "PNG", transparency=PALETTE.getpixel((0, 0))),
        on_white(FIRST),
    ),
    "JPEG": (encode(COLOURS, "JPEG", quality=95, subsampling=0), PIXELS),
    "grey JPEG": (encode(GREYS, "JPEG", quality=95), GREYS),
    "progressive JPEG": (
        encode(COLOURS, "JPEG", quality=95, subsampling=0, progressive=True),
        PIXELS,
    ),
    "BMP": (encode(COLOURS, "BMP"), PIXELS),
}
CONVERTED = {
    "PNG with a hole": (
        encode(COLOURS, "PNG", transparency=tuple(FIRST.tolist())),
        on_white(FIRST),
    ),
    "grey PNG with a hole": (
        encode(GREYS, "PNG", transparency=int(np.asarray(GREYS)[0, 0])),
        np.where(np.asarray(GREYS) == np.asarray(GREYS)[0, 0], 255, GREYS),
    ),
    "turned PNG": (encode(COLOURS.rotate(90, expand=True), "PNG", exif=TURNED), PIXELS),
    "turned JPEG": (
        encode(COLOURS.rotate(90, expand=True), "JPEG", quality=95, subsampling=0, exif=TURNED),
        PIXELS,
    ),
    "CMYK JPEG": (encode(COLOURS.convert("CMYK"), "JPEG", quality=95), PIXELS),
    "grey BMP": (encode(GREYS, "BMP"), GREYS),
    "BMP of a palette": (encode(PALETTE, "BMP"), PIXELS),
    "BMP of a bit": (encode(COLOURS.convert("1"), "BMP"), COLOURS.convert("1").convert("L")),
    "BMP of 32 bits": (BGRX, PIXELS),
    "GIF": (encode(PALETTE, "GIF"), PIXELS),
    "GIF with a hole": (
        encode(PALETTE, "GIF", transparency=PALETTE.getpixel((0, 0))),
        on_white(FIRST),
    ),
    "animated GIF": (encode(COLOURS, "GIF", **OTHER_FRAMES), PIXELS),
    "WEBP": (encode(COLOURS, "WEBP", lossless=True), PIXELS),
    "WEBP with alpha": (encode(with_alpha(COLOURS), "WEBP", lossless=True, exact=True), ON_WHITE),
    "animated WEBP": (encode(COLOURS, "WEBP", lossless=True, **OTHER_FRAMES), PIXELS),
    "TIFF": (encode(COLOURS, "TIFF"), PIXELS),
    "TIFF of 16 bits": (encode(DEEP, "TIFF"), np.asarray(DEEP) / 257),
}


@functools.cache
def graph(channels: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Decodes as Transform and serving do."""
    feature = ImageFeature(type="image", height=HEIGHT, width=WIDTH, channels=channels)
    return tf.function(lambda column: decode_images("image", column, feature))


@pytest.fixture(scope="session")
def graphs() -> None:
    """Traces the graphs once for all tests."""
    for channels in (1, 3):
        seen(encode(COLOURS, "PNG"), channels)


def seen(encoded: bytes, channels: int) -> np.ndarray:
    """The decoded pixels of a picture, in 0..255."""
    return graph(channels)(tf.constant([[encoded]])).numpy()[0] * 255


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("kind", [*KEPT, *CONVERTED])
def test_decoded_pixels_are_those_of_the_picture(kind):
    data, look = (KEPT | CONVERTED)[kind]
    picture = make_decodable(data)
    assert (picture.encoded == data) == (kind in KEPT) == (picture.converted_from is None)
    assert make_decodable(picture.encoded).converted_from is None
    look = np.asarray(look, float)
    colours = look if look.ndim == 3 else np.stack([look] * 3, -1)
    tolerance = 6 if "JPEG" in kind else 0.51
    np.testing.assert_allclose(seen(picture.encoded, 3), colours, atol=tolerance)
    greys = colours @ [[0.299], [0.587], [0.114]]
    np.testing.assert_allclose(seen(picture.encoded, 1), greys, atol=tolerance)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"a text", "a text"),
        (encode(COLOURS, "JPEG")[:-9], "truncated"),
    ],
)
def test_invalid_picture_is_refused_with_a_reason(data, reason):
    with pytest.raises(DataError) as caught:
        make_decodable(data)
    assert reason in str(caught.value)


def write_pictures(folder: Path) -> None:
    """Two classes of pictures, and what is found beside them."""
    for number in range(40):
        data = encode(Image.new("L", (2, 2), number), "PNG")
        write_image(folder / f"class{number % 2}" / f"{number}.png", data)
    (folder / "class0" / "moving.gif").write_bytes(encode(COLOURS, "GIF", **OTHER_FRAMES))
    (folder / "class1" / "_DSC1.jpg").write_bytes(encode(COLOURS.convert("CMYK"), "JPEG"))
    (folder / "class0" / "broken.png").write_bytes(encode(COLOURS, "PNG")[:70])
    for name in ("notes.txt", "Thumbs.db", ".DS_Store"):
        (folder / "class1" / name).write_bytes(b"no picture")
    for name in ("class1/old", "nothing", "__MACOSX/class0"):
        (folder / name).mkdir(parents=True)
    (folder / "class1" / "old" / "1.png").write_bytes(encode(COLOURS, "PNG"))


@pytest.mark.slow
def test_left_out_files_and_converted_pictures_are_noted(tmp_path, execute, read_split, refusal):
    write_pictures(tmp_path)
    message = refusal(tmp_path, "images", pattern="*/*")
    assert f"{tmp_path}/class0/broken.png" in message
    assert "data.on_bad_file: skip" in message
    examples = execute(tmp_path, "images", pattern="*/*", on_bad_file="skip")
    assert sum(len(read_split(examples, split)) for split in ("train", "eval")) == 42
    strays, nested, empty, broken, converted, two_classes = read_notes(examples).sentences
    assert f"{tmp_path}/class1/notes.txt" in strays
    assert f"{tmp_path}/class1/old" in nested
    assert f"{tmp_path}/nothing" in empty
    assert f"{tmp_path}/class0/broken.png" in broken
    assert "(GIF 1, JPEG 1)" in converted
    assert "2 classes" in two_classes


def test_picture_of_too_many_pixels_is_refused(tmp_path, execute, read_split, refusal):
    for number in range(20):
        data = encode(Image.new("L", (2, 2), number), "PNG")
        write_image(tmp_path / f"class{number % 2}" / f"{number}.png", data)
    larger = encode(Image.new("L", (9, 8)), "WEBP")
    (tmp_path / "class0" / "large.webp").write_bytes(larger)
    message = refusal(tmp_path, "images", pattern="*/*", max_pixels=70)
    assert f"{tmp_path}/class0/large.webp" in message
    assert "max_pixels" in message
    examples = execute(tmp_path, "images", pattern="*/*", max_pixels=70, on_bad_file="skip")
    assert sum(len(read_split(examples, split)) for split in ("train", "eval")) == 20


def test_top_down_bmp_is_converted_to_png():
    """The graph's decoder dies of it."""
    data = encode(COLOURS, "BMP")
    rows = np.asarray(COLOURS)[:, :, ::-1]
    width = -(-WIDTH * 3 // 4) * 4
    lines = b"".join(row.tobytes().ljust(width, b"\0") for row in rows)
    turned = data[:22] + (-HEIGHT).to_bytes(4, "little", signed=True) + data[26:54] + lines
    picture = make_decodable(turned)
    assert picture.converted_from == "BMP"
    np.testing.assert_allclose(seen(picture.encoded, 3), PIXELS, atol=0.51)


def write_image(path: Path, data: bytes) -> None:
    """Writes a file, and its folder where missing."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def test_pictures_have_their_bytes_and_the_label_of_their_folder(tmp_path, read_rows):
    files = {
        "cat/1.png": encode(GREYS, "PNG"),
        "cat/2.JPG": encode(GREYS, "JPEG"),
        "dog/3.jpeg": encode(COLOURS, "JPEG"),
        "dog/4.Bmp": encode(COLOURS, "BMP"),
    }
    for name, data in files.items():
        write_image(tmp_path / name, data)
    for name in ("Thumbs.db", ".DS_Store", "README.md"):
        write_image(tmp_path / "cat" / name, b"no image")
    rows = read_rows(tmp_path, "images", pattern="*/*", label="animal")
    found = sorted((row["animal"][0], row["image"][0]) for row in rows)
    assert found == sorted((name[:3].encode(), data) for name, data in files.items())
