"""No picture is decoded to more pixels than its header declares."""

from __future__ import annotations

import io
import random
import struct
import threading
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from trainer_module.errors import DataError
from trainer_module.features import pixels
from trainer_module.features.pixels import PixelBudget, check_pixels, read_header

_SIZE = (17, 13)


def encode(kind: str, mode: str = "RGB", **options: object) -> bytes:
    encoded = io.BytesIO()
    noise = Image.effect_noise(_SIZE, 90).convert(mode)
    noise.save(encoded, kind, **options)
    return encoded.getvalue()


def frames(count: int) -> dict[str, object]:
    others = [Image.effect_noise(_SIZE, 90).convert("P") for _ in range(count - 1)]
    return {"save_all": True, "append_images": others}


def chunk(name: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


PNG, JPEG, BMP = encode("PNG"), encode("JPEG"), encode("BMP")
PROGRESSIVE, GIF = encode("JPEG", progressive=True), encode("GIF", "P")
ANIMATED = encode("GIF", "P", **frames(4))
KINDS = {
    "PNG": PNG,
    "PNG of a palette": encode("PNG", "P"),
    "PNG with alpha": encode("PNG", "RGBA"),
    "JPEG": JPEG,
    "grey JPEG": encode("JPEG", "L"),
    "CMYK JPEG": encode("JPEG", "CMYK"),
    "progressive JPEG": PROGRESSIVE,
    "GIF": GIF,
    "BMP": BMP,
    "grey BMP": encode("BMP", "L"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_header_has_the_size_of_the_decoded_picture(kind: str) -> None:
    header = read_header(KINDS[kind])
    assert (header.width, header.height) == _SIZE
    assert header.pixels == 17 * 13 * (2 if header.kind == "GIF" else 1)
    check_pixels(header, header.pixels)
    with pytest.raises(DataError, match=r"of 17 x 13 pixels.*, more than the 100 that max_pixels"):
        check_pixels(header, 100)


def test_all_frames_of_a_gif_count() -> None:
    """The decoder reads all of them, also for the first alone."""
    assert read_header(ANIMATED).pixels == 17 * 13 * 5
    frame = struct.pack("<BHHHHBB", 0x2C, 0, 0, 3000, 2000, 0, 8) + b"\2\x4c\1\0"
    assert read_header(GIF[:-1] + frame + b";").pixels == 17 * 13 * 2 + 6_000_000
    # An extension without a block ends at once: what follows is a frame, not a block of 44 bytes.
    assert read_header(GIF[:-1] + b"!\xf9\0" + frame).pixels == 17 * 13 * 2 + 6_000_000


def test_first_of_two_frames_of_a_jpeg_counts() -> None:
    """The decoder refuses a second one."""
    place = JPEG.index(b"\xff\xc0")
    larger = JPEG[place : place + 5] + struct.pack(">HH", 9000, 8000) + JPEG[place + 9 : place + 19]
    assert read_header(JPEG[:place] + larger + JPEG[place:]).pixels == 72_000_000
    behind = JPEG[: place + 19] + larger + JPEG[place + 19 :]
    assert read_header(behind).pixels == 17 * 13
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_image(behind)


def _scans() -> bytes:
    place = PROGRESSIVE.rindex(b"\xff\xda")
    return PROGRESSIVE[:-2] + PROGRESSIVE[place:-2] * 200 + PROGRESSIVE[-2:]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty, and is not a PNG, JPEG, GIF or BMP"),
        (PNG[:20], "it ends within its header"),
        (PNG[:8] + chunk(b"tEXt", b"a\0b") + PNG[8:], "its first chunk is not IHDR"),
        (
            PNG[:-12] + chunk(b"zTXt", bytes(9000)) * 5 + PNG[-12:],
            "its compressed texts may have megabytes",
        ),
        (PNG[:33] + chunk(b"tEXt", b"") * 100_000, "it has more than 100,000 chunks"),
        (_scans(), "it has 210 scans, more than the limit of 100"),
        (BMP[:22] + struct.pack("<i", -13) + BMP[26:], "a BMP whose rows are stored from the top"),
    ],
)
def test_pictures_that_are_damaged_or_too_costly_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        read_header(data)
    assert reason in str(caught.value)


WORDS = (
    struct.pack(">HHBHHB", 0xFFC0, 17, 8, 3000, 2000, 3) + JPEG[JPEG.index(b"\xff\xc0") + 10 :][:9],
    struct.pack("<BHHHHBB", 0x2C, 0, 0, 3000, 2000, 0, 8) + b"\2\x4c\1\0",
    *(b"\xff\xc2", b"\xff\xda", b"\xff\xd9", b"\xff\xff", b"\xff\xd8", b"\xff\xfe\0\4", b"\xff\1"),
    *(b"!\xf9\0", b"!\xff\0", b"!\xfe\0\0", b",", b";", b"\0", b"\x0b\xb8\x07\xd0"),
    *(struct.pack("<i", -13), struct.pack("<i", 3000), struct.pack(">I", 3000)),
)


def damaged(generator: random.Random) -> bytes:
    """A picture of which some bytes have changed, mostly in its header."""
    data = bytearray(generator.choice([*KINDS.values(), ANIMATED]))
    for _ in range(generator.choice((1, 1, 2, 4))):
        length = len(data) if generator.random() < 0.4 else min(len(data), 60)
        place, word = generator.randrange(length), generator.choice(WORDS)
        match generator.randrange(4):
            case 0:
                data[place] = generator.randrange(256)
            case 1:
                data[place : place + len(word)] = word
            case 2:
                data[place:place] = word
            case _:
                del data[place : place + generator.randrange(20)]
    return _with_checksums(bytes(data))


def _with_checksums(data: bytes) -> bytes:
    """The same with right checksums, if it is a PNG."""
    if not data.startswith(PNG[:8]):
        return data
    found, place = data[:8], 8
    while place + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, place)
        found += chunk(name, data[place + 8 : place + 8 + length])
        place += length + 12
    return found


def test_damaged_pictures_never_decode_to_more_pixels_than_their_header_has() -> None:
    """Of 220,000 damaged pictures none was; here are some of them."""
    generator, decoded = random.Random(33), 0  # noqa: S311 - no secret
    for _ in range(900):
        data = damaged(generator)
        try:
            header = read_header(data)
        except DataError:
            continue
        if header.pixels > 1_000_000:
            continue
        try:
            pixels = tf.io.decode_image(data, dtype=tf.float32, expand_animations=False)
        except tf.errors.InvalidArgumentError:
            continue
        decoded += 1
        assert pixels.shape[0] * pixels.shape[1] <= header.pixels
    assert decoded > 100


def test_pixels_that_are_decoded_at_a_time_are_bounded() -> None:
    budget, at_once, most, lock = PixelBudget(10_000_000), 0, 0, threading.Lock()

    def decode(pixels: int) -> None:
        nonlocal at_once, most
        with budget.take(pixels):
            with lock:
                at_once += pixels
                most = max(most, at_once)
            finished.wait(0.01)
            with lock:
                at_once -= pixels

    finished = threading.Event()
    sizes = [4_000_000] * 10 + [50_000_000] + [4_000_000] * 10
    threads = [threading.Thread(target=decode, args=(size,)) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 50_000_000  # Alone, as nothing else has room beside it.
    with budget.take(10_000_000), budget.take(1_000_000):
        pass  # Few do not wait.


def png_of(data: bytes, side: int = 16) -> bytes:
    """An RGB picture whose pixels are unpacked from some data."""

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def test_png_whose_data_unpacks_to_more_than_its_pixels_is_refused() -> None:
    packer = zlib.compressobj(9)
    zeros = b"".join(packer.compress(bytes(1 << 20)) for _ in range(50)) + packer.flush()
    assert len(zeros) < 300_000
    with pytest.raises(DataError, match="larger than its pixels"):
        read_header(png_of(zeros))


def test_data_of_a_png_that_is_too_large_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = png_of(zlib.compress(bytes(40_000_000)), side=10_000)
    monkeypatch.setattr(pixels, "_decompresses_to_more", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(DataError, match="more than the 100 that max_pixels"):
        read_header(data, max_pixels=100)


@pytest.mark.parametrize("mode", ["1", "RGBA", "I;16"])
def test_png_of_noise_and_of_nothing_is_read(mode: str) -> None:
    """One that can hardly be packed, and one that can be packed to next to nothing."""
    size = (700, 500)
    noise = Image.frombytes("L", size, np.random.default_rng(0).bytes(350_000))
    for picture in (noise, Image.new("L", size)):
        made = io.BytesIO()
        wide = picture.convert("I") if mode == "I;16" else picture
        wide.convert(mode).save(made, "PNG")
        assert read_header(made.getvalue()).pixels == 350_000
