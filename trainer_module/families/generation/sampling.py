"""What a pushed generator is asked for: golden rows, and pictures for `predict --n`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer_module.errors import DataError
from trainer_module.families.generation.sampler import (
    DESCRIBE,
    NUMBER,
    PICTURES,
    PNG,
    SEED,
    encode_pngs,
    make_grid,
)

if TYPE_CHECKING:
    from trainer_module.families import SampleRequest

GRID_FILE = "grid.png"
_ROWS = 12
_LARGE = 1 << 40


def golden_rows(
    folder: Path, custom_config: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Seeds and classes that a generator is asked for before it is pushed.

    Args:
      folder: of the exported model.
      custom_config: is not read.
    """
    del custom_config
    label, classes = _describe(tf.saved_model.load(str(folder)))

    def row(seed: int, number: int, name: str) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {SEED: [seed], NUMBER: [number]}
        return values | ({label: [name.encode()]} if classes else {})

    for place in range(max(_ROWS, len(classes))):
        name = classes[place % len(classes)] if classes else ""
        yield f"picture {place} of seed 1{f', class {name}' if name else ''}", row(1, place, name)
    usual = classes[0] if classes else ""
    yield "a seed far from 0", row(_LARGE, 0, usual)
    yield "a seed below 0", row(-1, 0, usual)
    if classes:
        yield "a class that there is none of", row(1, 0, "never seen")


def write_samples(folder: Path, request: SampleRequest, output: Path) -> str:
    """Writes pictures, and all of them in a grid, for `predict --n`.

    Args:
      folder: of the pushed model.
      request: how many, by which seed, of which class.
      output: an empty folder.

    Returns:
      What was written, in words.

    Raises:
      DataError: there is no such class.
    """
    model = tf.saved_model.load(str(folder))
    _, classes = _describe(model)
    if request.label and request.label not in classes:
        right = ", ".join(classes)
        known = f"right is one of {right}" if classes else "it was trained without classes"
        raise DataError(f"--class {request.label}: the model has no such class; {known}.")
    answer = model.signatures[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY](
        n=tf.constant(request.count, tf.int64),
        seed=tf.constant(request.seed, tf.int64),
        label=tf.constant(request.label or ""),
    )
    for number, png in enumerate(answer[PNG].numpy().tolist()):
        (output / f"{number:04d}.png").write_bytes(png)
    grid = make_grid(answer[PICTURES])
    (output / GRID_FILE).write_bytes(encode_pngs(grid[tf.newaxis])[0].numpy())
    pictures = "1 picture" if request.count == 1 else f"{request.count:,} pictures"
    return f"{pictures} of seed {request.seed}, and {GRID_FILE}"


def _describe(model: Any) -> tuple[str, list[str]]:
    """What requests call the class, and the classes."""
    found = model.signatures[DESCRIBE]()
    return found["label"].numpy().decode(), [n.decode() for n in found["classes"].numpy().tolist()]
