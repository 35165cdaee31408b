"""Pictures of every kind: the model's graph sees what people see, and no file goes unmentioned."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
    """That of Transform and serving."""
    feature = ImageFeature(type="image", height=HEIGHT, width=WIDTH, channels=channels)
    return tf.function(lambda column: decode_images("image", column, feature))


def seen(encoded: bytes, channels: int) -> np.ndarray:
    """What the graph makes of a picture, in 0..255."""
    return graph(channels)(tf.constant([[encoded]])).numpy()[0] * 255


@pytest.mark.parametrize("kind", [*KEPT, *CONVERTED])
def test_the_graph_sees_what_people_see(kind):
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
        (b"", "the file is empty"),
        (b"a text", "no format of pictures begins with b'a text'"),
        (encode(COLOURS, "WEBP")[:-9], "could not create decoder object"),
        (encode(COLOURS, "JPEG")[:-9], "image file is truncated"),
        (
            encode(Image.fromarray(np.ones((2, 2), np.float32)), "TIFF"),
            "it has 32 bits per channel",
        ),
    ],
)
def test_what_is_no_picture_has_a_reason(data, reason):
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


def test_no_file_goes_unmentioned(tmp_path, execute, read_split, refusal):
    write_pictures(tmp_path)
    message = refusal(tmp_path, "images", pattern="*/*")
    assert f"Image {tmp_path}/class0/broken.png cannot be decoded (" in message
    assert "leave out all files with broken pictures by data.on_bad_file: skip" in message
    examples = execute(tmp_path, "images", pattern="*/*", on_bad_file="skip")
    assert sum(len(read_split(examples, split)) for split in ("train", "eval")) == 42
    strays, nested, empty, broken, converted, two_classes = read_notes(examples).sentences
    assert strays == f"1 file left out, without a picture's extension: {tmp_path}/class1/notes.txt"
    assert nested == f"1 folder left out, within class folders: {tmp_path}/class1/old"
    assert empty == f"1 class folder without a picture: {tmp_path}/nothing"
    assert broken.startswith(
        f"1 broken picture is left out (data.on_bad_file: skip): {tmp_path}/class0/broken.png ("
    )
    assert converted.startswith("2 pictures were converted to PNG (GIF 1, JPEG 1): ")
    assert converted.endswith("differently from picture viewers")
    assert two_classes.startswith("label 'label' has 2 classes")


def test_pictures_of_too_many_pixels_are_broken(tmp_path, execute, read_split, refusal):
    """By their headers, and by that which the graph's decoder reads."""
    for number in range(20):
        data = encode(Image.new("L", (2, 2), number), "PNG")
        write_image(tmp_path / f"class{number % 2}" / f"{number}.png", data)
    larger = encode(Image.new("L", (9, 8)), "WEBP")
    (tmp_path / "class0" / "large.webp").write_bytes(larger)
    message = refusal(tmp_path, "images", pattern="*/*", max_pixels=70)
    assert f"Image {tmp_path}/class0/large.webp cannot be decoded (it is a WEBP of 9 x 8" in message
    assert "more than the 70 that max_pixels allows" in message
    examples = execute(tmp_path, "images", pattern="*/*", max_pixels=70, on_bad_file="skip")
    assert sum(len(read_split(examples, split)) for split in ("train", "eval")) == 20


def test_bmp_whose_rows_begin_at_the_top_becomes_a_png():
    """The graph's decoder dies of it."""
    data = encode(COLOURS, "BMP")
    rows = np.asarray(COLOURS)[:, :, ::-1]
    width = -(-WIDTH * 3 // 4) * 4
    lines = b"".join(row.tobytes().ljust(width, b"\0") for row in rows)
    turned = data[:22] + (-HEIGHT).to_bytes(4, "little", signed=True) + data[26:54] + lines
    picture = make_decodable(turned)
    assert picture.converted_from == "BMP"
    np.testing.assert_allclose(seen(picture.encoded, 3), PIXELS, atol=0.51)


def example(photo: bytes, label: int) -> bytes:
    values = {
        "photo": tf.train.Feature(bytes_list=tf.train.BytesList(value=[photo])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


@pytest.mark.parametrize("column", ["parquet", "tfrecord"])
def test_encoded_pictures_of_a_table_are_measured(tmp_path, refusal, execute, column):
    photos = [encode(Image.new("L", (2, 2 + (number == 7)), number), "PNG") for number in range(30)]
    if column == "parquet":
        table = pa.table({"photo": photos, "label": [number % 2 for number in range(30)]})
        pq.write_table(table, tmp_path / "rows.parquet")
    else:
        with tf.io.TFRecordWriter(str(tmp_path / "rows.tfrecord")) as writer:
            for number, photo in enumerate(photos):
                writer.write(example(photo, number % 2))
    given = {"encoded_pictures": ["photo"], "pattern": "rows*"}
    message = refusal(tmp_path, column, max_pixels=4, **given)
    assert "Column 'photo' does not hold a picture that can be decoded in row 8" in message
    assert "it is a PNG of 2 x 3 pixels, more than the 4 that max_pixels allows" in message
    execute(tmp_path, column, **given)


@pytest.mark.parametrize("stratify", [False, True])
def test_pictures_that_are_all_broken_are_refused(tmp_path, refusal, stratify):
    for name in ("cat", "dog"):
        write_image(tmp_path / name / "1.png", b"no picture")
    message = refusal(tmp_path, "images", pattern="*/*", on_bad_file="skip", stratify=stratify)
    assert "No picture can be read: 2 broken pictures are left out" in message


def write_image(path: Path, data: bytes) -> None:
    """Writes a file, and its folder where missing."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def test_images_keep_their_bytes_and_take_their_folders_name(tmp_path, read_rows):
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


def test_every_shard_of_images_has_all_classes(tmp_path, execute, read_split):
    for number in range(1100):
        write_image(
            tmp_path / f"class{number % 2}" / f"{number}.png",
            encode(Image.new("L", (1, 1), number // 5), "PNG"),
        )
    examples = execute(tmp_path, "images", pattern="*/*")
    shards = sorted(Path(examples.uri, "Split-train").iterdir())
    assert [shard.name for shard in shards] == [
        f"data_tfrecord-0000{shard}-of-00003.gz" for shard in range(3)
    ]
    for shard in shards:
        records = list(tf.data.TFRecordDataset(str(shard), "GZIP").as_numpy_iterator())
        labels = {
            tf.train.Example.FromString(record).features.feature["label"].bytes_list.value[0]
            for record in records
        }
        assert labels == {b"class0", b"class1"}
    total = len(read_split(examples, "train")) + len(read_split(examples, "eval"))
    assert total == 1100
