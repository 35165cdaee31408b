"""Which classes a model takes for which: the worst of a confusion matrix, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow_model_analysis as tfma
from tfx.utils import path_utils

from components.evaluator.slices import CANDIDATE
from trainer_module.errors import DataError
from trainer_module.export.interface import read_interface

MOST_SHOWN = 3
"""Pairs of classes that leave room for the rest on one screen."""


@dataclass(frozen=True)
class Mistaken:
    """A class that is taken for another one."""

    rows: float
    """How many rows, or what they weigh."""
    of: float
    """All of the class."""
    true: int
    said: int


def read_mistakes(uri: str) -> list[Mistaken]:
    """What is mistaken of the whole eval split, most first; empty where no matrix was measured.

    Args:
      uri: the folder that TFMA wrote to.
    """
    counts = {(true, said): count for true, said, count in _cells(uri)}
    totals: dict[int, float] = {}
    for (true, _), count in counts.items():
        totals[true] = totals.get(true, 0.0) + count
    mistakes = (
        Mistaken(count, totals[true], true, said)
        for (true, said), count in counts.items()
        if true != said and count
    )
    return sorted(mistakes, key=lambda one: (-one.rows, one.true, one.said))


def _cells(uri: str) -> Iterator[tuple[int, int, float]]:
    """The true class, the most probable one, and how often, of the new model."""
    for plots in tfma.load_plots(uri):
        if plots.slice_key.single_slice_keys:
            continue
        for item in plots.plot_keys_and_values:
            if item.key.model_name in ("", CANDIDATE):
                for matrix in item.value.multi_class_confusion_matrix_at_thresholds.matrices:
                    for cell in matrix.entries:
                        yield (
                            cell.actual_class_id,
                            cell.predicted_class_id,
                            cell.num_weighted_examples,
                        )


def describe_mistakes(uri: str, model: str | None) -> str:
    """The pairs of classes that are mistaken most; empty where none is, or none was measured.

    Args:
      uri: the folder that TFMA wrote to.
      model: that of the model's artifact, which knows the names of the classes.
    """
    mistakes = read_mistakes(uri)
    if not mistakes:
        return ""
    classes = _classes(model)

    def name(number: int) -> str:
        if not classes:
            return f"class {number}"
        return classes[number] if 0 <= number < len(classes) else "a class that training had not"

    pairs = [
        f"{name(one.true)} as {name(one.said)} ({one.rows:,.4g} of {one.of:,.4g})"
        for one in mistakes[:MOST_SHOWN]
    ]
    return f"most often mistaken: {', '.join(pairs)}"


def _classes(model: str | None) -> Sequence[str]:
    """The names; none of a model that somebody else's code has exported."""
    if model is None:
        return ()
    try:
        return read_interface(Path(path_utils.serving_model_path(model))).classes
    except DataError:
        return ()
