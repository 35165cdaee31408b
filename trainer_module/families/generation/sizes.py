"""The sizes of pictures that the generators can make; imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_module.errors import DataError
from trainer_module.settings import ModelSettings

KINDS = {"gan": "units", "dcgan": "filters"}
"""The models of the family by the name in `model.kind`, and the key of `model.options` that has the
sizes of their layers."""

MOST_OUTPUTS = 1 << 16
"""Numbers of a picture that a dense layer makes at most: each has a weight for every unit below."""
LEAST_BASE, MOST_BASE = 4, 8
"""Pixels of a side of the picture that convolutions begin with."""


def doublings(height: int, width: int) -> int:
    """How often a picture of 4 to 8 pixels a side is doubled to one of this size.

    Raises:
      DataError: the size is not 4 to 8 pixels times a power of 2, the same for both sides.
    """
    times, sides = 0, (height, width)
    while min(sides) >= 2 * LEAST_BASE and all(side % 2 == 0 for side in sides):
        times, sides = times + 1, (sides[0] // 2, sides[1] // 2)
    if times and min(sides) >= LEAST_BASE and max(sides) <= MOST_BASE:
        return times
    raise DataError(
        f"found {height}x{width} pixels, but dcgan doubles a picture of {LEAST_BASE} to {MOST_BASE}"
        " pixels a side; right are sizes such as 28x28, 32x32, 48x64 and 64x64: give height and"
        " width, as pictures are resized"
    )


def layer_sizes(model: ModelSettings) -> tuple[int, ...]:
    """The sizes of the layers that a config gives, from the noise on; empty for the usual ones.

    Raises:
      DataError: they are none; the message is a reason, without the key.
    """
    given = model.options.get(KINDS[model.kind], [])
    is_list = isinstance(given, list) and all(type(size) is int and size > 0 for size in given)
    if not is_list:
        raise DataError(f"found {given!r}; right is a list of whole numbers above 0")
    return tuple(given)


def check_size(
    kind: str, height: int, width: int, channels: int, filters: Sequence[int] = ()
) -> None:
    """Checks that a generator can make pictures of a size.

    Args:
      kind: `gan` or `dcgan`.
      height: in pixels.
      width: in pixels.
      channels: 1 or 3.
      filters: of a dcgan at each size, from the smallest on, as `layer_sizes` has them.

    Raises:
      DataError: it cannot; the message is a reason, without the column.
    """
    if kind == "dcgan":
        times = doublings(height, width)
        if filters and len(filters) != times:
            raise DataError(
                f"found {height}x{width} pixels and {len(filters)} model.options.filters; such a"
                f" picture is doubled {times} times, and takes as many"
            )
    elif height * width * channels > MOST_OUTPUTS:
        raise DataError(
            f"found {height}x{width} pixels in {channels} channels, {height * width * channels:,}"
            f" numbers, but the dense layers of gan make {MOST_OUTPUTS:,} at most; give a smaller"
            " height and width, or use dcgan"
        )
