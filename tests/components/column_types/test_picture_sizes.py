"""The size of pictures where the config has none."""

from __future__ import annotations

import io
import random

import pytest
from PIL import Image

from components.column_types.choice import Choice
from components.column_types.pictures import choose_size


def encode(width: int, height: int, mode: str = "L", form: str = "PNG") -> bytes:
    written = io.BytesIO()
    Image.new(mode, (width, height)).save(written, form)
    return written.getvalue()


def chosen(*pictures: bytes) -> Choice:
    choice = choose_size(pictures)
    assert choice is not None
    return choice


@pytest.mark.parametrize(
    ("pictures", "size"),
    [
        ([encode(40, 30)] * 3 + [encode(8, 8), encode(99, 99)], (30, 40, 1)),
        ([encode(640, 480, "RGB", "JPEG")] * 2 + [encode(64, 64)], (168, 224, 3)),
        ([encode(9, 9, "LA"), encode(9, 9, "L", "JPEG"), b"", b"no picture"], (9, 9, 1)),
    ],
)
def test_median_size_is_chosen_in_any_order(
    pictures: list[bytes], size: tuple[int, int, int]
) -> None:
    expected = chosen(*pictures)
    assert tuple(expected.settings[key] for key in ("height", "width", "channels")) == size
    for seed in range(3):
        assert chosen(*random.Random(seed).sample(pictures, len(pictures))) == expected  # noqa: S311


def test_without_a_picture_there_is_no_size() -> None:
    assert choose_size([b"", b"GIF89a"]) is None
