"""How far the answers to the same rows are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.infra_validator.certificate import Agreement
from components.infra_validator.rows import GoldenRow
from components.serving.servable import Arrays

_CLASS, _CLASSES, _SCORES = "class", "classes", "scores"


def compare(expected: Arrays, found: Arrays, rows: Sequence[GoldenRow]) -> Agreement:
    """The largest difference of all rows and outputs.

    Scores differ by so much as such. Other numbers, whose unit nobody knows, differ by a share of
    the expected one, or of the usual size of the output where that is larger. Text is equal,
    or differs without end; but of two classes whose scores are as good as equal either may be the
    most probable one.

    Args:
      expected: answers by name, [rows, ...] each.
      found: the same of another way.
      rows: what was asked.
    """
    worst = Agreement(0.0, "", "")
    if found.keys() != expected.keys():
        missing = sorted(found.keys() ^ expected.keys())[0]
        return Agreement(float("inf"), rows[0].says, missing)
    for name, values in expected.items():
        apart = _differences(name, values, found[name], expected)
        row = int(np.argmax(apart))
        if apart[row] > worst.largest_difference:
            worst = Agreement(float(apart[row]), rows[row].says, name)
    return worst


def _differences(name: str, expected: np.ndarray, found: np.ndarray, answers: Arrays) -> np.ndarray:
    """Of each row, [rows] float64."""
    if expected.shape != found.shape:
        return np.full(len(expected), np.inf)
    if expected.dtype != object:
        numbers = expected.astype(np.float64)
        usual = 1.0 if name == _SCORES else _usual_size(numbers)
        apart = _of_numbers(numbers, found.astype(np.float64), usual)
    else:
        differs = _as_text(expected) != _as_text(found)
        apart = np.where(differs, np.inf, 0.0)
        if name == _CLASS and differs.any() and {_CLASSES, _SCORES} <= answers.keys():
            apart = np.where(differs, _gaps(expected, found, answers), 0.0)
    return apart.reshape(len(apart), -1).max(axis=1, initial=0.0)


def _usual_size(numbers: np.ndarray) -> float:
    """The root of the mean square of those that are finite; 1 where there is nothing but zeros."""
    finite = np.abs(numbers[np.isfinite(numbers)])
    largest = finite.max(initial=0.0)
    # Squares of shares: those of the numbers may be too large.
    return float(largest * np.sqrt(np.mean((finite / largest) ** 2))) if largest else 1.0


def _of_numbers(expected: np.ndarray, found: np.ndarray, usual: float) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(expected - found) / np.maximum(usual, np.abs(expected))
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _gaps(expected: np.ndarray, found: np.ndarray, answers: Arrays) -> np.ndarray:
    """How far the scores of two classes are apart, by row; infinite of a class that is none."""
    names = _as_text(answers[_CLASSES])

    def score_of(wanted: np.ndarray) -> np.ndarray:
        is_it = names == _as_text(wanted)[:, np.newaxis]
        scores = np.where(is_it, answers[_SCORES], 0.0).sum(axis=1)
        return np.where(is_it.any(axis=1), scores, np.inf)

    gaps: np.ndarray = np.abs(score_of(expected) - score_of(found))
    return np.where(np.isnan(gaps), np.inf, gaps)


def _as_text(values: np.ndarray) -> np.ndarray:
    """Bytes as JSON has them."""
    decoded = [v.decode(errors="replace") for v in values.reshape(-1).tolist()]
    return np.array(decoded, object).reshape(values.shape)
