"""The weights of a model by names that stay the same from one training to the next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

_TAIL = re.compile(r"(/part_\d+)?(:\d+)?$")
"""What TensorFlow adds to a variable's name: the part that a parameter server holds, the output."""

_NUMBERED = re.compile(r"(.+?)(?:_(\d+))?")
"""A name that Keras made up, with the number that keeps it apart from others in the process."""


@dataclass
class Weight:
    """One weight of a model, of which several servers may hold a part of the rows each."""

    name: str
    """As in a checkpoint, `dense_1/kernel`."""
    variables: list[Any] = field(default_factory=list)
    """In the order of their rows."""

    @property
    def is_learnt(self) -> bool:
        """Whether training changes it; constants, and counters of random numbers, stay as built."""
        return self.variables[0].trainable or self.name.rpartition("/")[2].startswith("moving_")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all parts together."""
        first = tuple(self.variables[0].shape)
        return (sum(part.shape[0] for part in self.variables), *first[1:]) if first else ()

    def read(self) -> np.ndarray:
        """The value that it has now."""
        parts = [tf.identity(part).numpy() for part in self.variables]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def assign(self, value: np.ndarray) -> None:
        """Gives it a value; call it in the scope of the strategy."""
        if len(self.variables) == 1:
            self.variables[0].assign(value)
            return
        start = 0
        for part in self.variables:
            part.assign(value[start : start + part.shape[0]])
            start += part.shape[0]


def plain_name(variable: Any) -> str:
    """A variable's name as checkpoints have it."""
    return _TAIL.sub("", variable.name)


def weights_of(model: tf_keras.Model) -> list[Weight]:
    """The weights of a built model; those that share their name cannot be told apart: left out."""
    found: dict[str, Weight] = {}
    starts: Counter[str] = Counter()
    for variable in model.weights:
        name = plain_name(variable)
        # The parts of a weight are numbered; only the first, or the only one, begins a weight.
        starts[name] += not re.search(r"/part_[1-9]\d*(:\d+)?$", variable.name)
        found.setdefault(name, Weight(name)).variables.append(variable)
    return [weight for name, weight in found.items() if starts[name] == 1]


def shared_names(model: tf_keras.Model) -> list[str]:
    """The names that `weights_of` leaves out, of weights that are learnt."""
    told_apart = {weight.name for weight in weights_of(model)}
    return sorted({plain_name(variable) for variable in model.trainable_weights} - told_apart)


def layers_of(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """The model itself and all its layers, those within others too."""
    yield model
    yield from (part for part in model.submodules if isinstance(part, tf_keras.layers.Layer))


def made_up_names(model: tf_keras.Model) -> set[str]:
    """What Keras calls the layers of a model to which nobody gave a name, without their number."""
    names = set()
    for layer in layers_of(model):
        name = _split(layer.name)[0]
        # An operation called outside of a layer becomes one, tf.math.reduce_sum_3.
        is_operation = name.startswith("tf.")
        if is_operation or name.replace("_", "") in (kind := _letters(layer), f"private{kind}"):
            names.add(name)
    return names


def stable_names(names: Iterable[str], made_up: Iterable[str]) -> dict[str, str]:
    """Names whose numbers count from 0 in order, `dense#0` and `dense#1` for dense_7 and dense_8.

    Keras numbers the layers of a process, so the same model has other numbers if it is not the
    first one to be built. Names that someone has given stay as they are.

    Args:
      names: of weights or layers, with `/` between a layer and what is within it.
      made_up: the names without their numbers that Keras has given.

    Returns:
      The stable name of each.
    """
    made_up = set(made_up)
    paths = {name: name.split("/") for name in names}
    numbers: dict[tuple[str, ...], set[int]] = {}
    for path in paths.values():
        for depth, part in enumerate(path):
            base, number = _split(part)
            numbers.setdefault((*path[:depth], base), set()).add(number)

    def stable(path: list[str]) -> Iterator[str]:
        for depth, part in enumerate(path):
            base, number = _split(part)
            among = sorted(numbers[*path[:depth], base])
            yield f"{base}#{among.index(number)}" if base in made_up else part

    return {name: "/".join(stable(path)) for name, path in paths.items()}


def _split(name: str) -> tuple[str, int]:
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2] or 0)) if match else (name, 0)


def _letters(layer: tf_keras.layers.Layer) -> str:
    return type(layer).__name__.lower().replace("_", "")
