"""What a pushed generator is asked for: golden rows, and pictures for `predict --n`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer_module.errors import DataError, counted
from trainer_module.export.saving import SERVING_RAW_SIGNATURE
from trainer_module.families.generation.sampler import (
    DESCRIBE,
    NUMBER,
    PNG_TEXT,
    SEED,
    make_grid,
)

if TYPE_CHECKING:
    from trainer_module.families import SampleRequest

GRID_FILE = "grid.png"
_AT_ONCE = 256
"""Pictures that are asked for at a time."""
_MOST_SHOWN = 1024
"""Pictures of the grid."""
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
    label, classes = _describe(model)
    if request.label and request.label not in classes:
        right = ", ".join(classes)
        known = f"right is one of {right}" if classes else "it was trained without classes"
        raise DataError(f"--class {request.label}: the model has no such class; {known}.")
    names = [request.label] if request.label else classes
    shown: list[tf.Tensor] = []
    for start in range(0, request.count, _AT_ONCE):
        numbers = range(start, min(request.count, start + _AT_ONCE))
        found = _ask(model, request.seed, numbers, label, names)
        for number, png in zip(numbers, found, strict=True):
            (output / f"{number:04d}.png").write_bytes(png)
            if number < _MOST_SHOWN:
                shown.append(tf.io.decode_png(png))
    (output / GRID_FILE).write_bytes(tf.io.encode_png(make_grid(tf.stack(shown))).numpy())
    which = f" with the first {_MOST_SHOWN:,}" if request.count > _MOST_SHOWN else ""
    return f"{counted(request.count, 'picture')} of seed {request.seed}, and {GRID_FILE}{which}"


def _ask(model: Any, seed: int, numbers: range, label: str, names: Sequence[str]) -> list[bytes]:
    """The PNG files of some pictures of a seed, whose classes are in turn those of the names."""
    whole = {SEED: [seed] * len(numbers), NUMBER: [*numbers]}
    rows = {name: tf.constant(values, tf.int64) for name, values in whole.items()}
    if names:
        rows[label] = tf.constant([names[number % len(names)] for number in numbers])
    found = model.signatures[SERVING_RAW_SIGNATURE](**rows)[PNG_TEXT].numpy()
    return [base64.b64decode(text) for text in found.tolist()]


def _describe(model: Any) -> tuple[str, list[str]]:
    """What requests call the class, and the classes."""
    found = model.signatures[DESCRIBE]()
    return found["label"].numpy().decode(), [n.decode() for n in found["classes"].numpy().tolist()]
