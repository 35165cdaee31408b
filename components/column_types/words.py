"""Chooses the columns whose words become inputs, because the words help to predict the label.

Two models predict the labels of unseen rows: one from the category alone, the other also from its
most frequent words. The module does not import TensorFlow.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.choice import Choice
from components.column_types.facts import Facts
from components.column_types.hints import are_codes, identifies
from trainer_module.features.base import MAX_WORDS

WORDS = 64
MIN_ROWS = 100
MAX_ROWS = 6_000
"""The maximum number of rows for the comparison, which takes a fraction of a second per column."""
_MIN_SPACES = 0.5
"""The minimum average number of spaces in a value that consists of words."""
_MIN_VALUES = 20
"""The minimum number of different values: the categories tell few values apart by themselves."""
_MAX_CLASSES = 20
"""The maximum number of classes in the comparison, the most frequent ones."""
_FOLDS = 3
_MIN_GAIN = 0.01
"""The minimum share of the squared error that the words remove."""
_MIN_ERRORS = 3.0
"""The minimum reduction of the squared error, in standard errors of its mean over the rows."""
_SMOOTHING = 5.0
"""The weight of the mean label in the label of a category, in rows."""
_RIDGE = 1.0
"""The L2 regularisation of the weights of words."""
_WORD = re.compile(r"[^\W_][\w.'-]*[^\W_]|[^\W_]")


def choose_words(
    columns: Sequence[Facts],
    choices: Mapping[str, Choice],
    values: Mapping[str, pa.Array],
    label: pa.Array,
    is_class: bool,
) -> dict[str, Choice]:
    """Returns the new choices of columns whose words help to predict the label of unseen rows.

    Args:
      choices: the choice of each column by the facts alone.
      values: the values of the columns in a sample, [rows]; null where a value is missing.
      label: the label in the sample, [rows]; null where it is missing.
    """
    has_others = any(not choice.is_ignored and choice.type != "text" for choice in choices.values())
    candidates = [f.name for f in columns if _may_have_words(f, choices[f.name], has_others)]
    rows = np.flatnonzero(label.is_valid().to_numpy(zero_copy_only=False))
    if not candidates or len(rows) < MIN_ROWS:
        return {}
    rows = rows[:: math.ceil(len(rows) / MAX_ROWS)]
    target = _as_target(label.take(pa.array(rows)), is_class)
    found = {}
    for name in candidates:
        texts = values[name].take(pa.array(rows)).cast(pa.binary()).to_pylist()
        if words_help([(text or b"").decode(errors="replace") for text in texts], target):
            choice = choices[name]
            reason = f"{choice.reason}; its {WORDS} most frequent words help to predict the label"
            settings = {"type": "categorical"} if choice.is_ignored else choice.settings
            found[name] = replace(choice, settings={**settings, "words": WORDS}, reason=reason)
    return found


def _may_have_words(facts: Facts, choice: Choice, has_others: bool) -> bool:
    """Returns whether a column holds categories, names or sentences of several words.

    Args:
      has_others: whether a column is not text. Otherwise, the model reads all words anyway.
    """
    if not facts.is_text or facts.longest or facts.dates is not None or are_codes(facts.examples):
        return False
    is_name = choice.is_ignored and not identifies(facts.name)
    is_text = choice.type == "text" and "tokens" not in choice.settings and has_others
    are_words = facts.mean_spaces >= _MIN_SPACES and facts.distinct >= _MIN_VALUES
    return (is_name or is_text or choice.type == "categorical") and are_words


def _as_target(label: pa.Array, is_class: bool) -> np.ndarray:
    """Returns the classes as indicators, or the ranks of numbers, [rows, outputs] float64.

    Ranks keep a few very large numbers from deciding.
    """
    if is_class:
        counts = Counter(label.to_pylist())
        frequent = sorted(counts, key=lambda value: (-counts[value], str(value)))[:_MAX_CLASSES]
        indicators = [pc.equal(label, v).to_numpy(zero_copy_only=False) for v in frequent]
        return np.stack(indicators, 1).astype(float)
    _, places, occurrences = np.unique(
        label.to_numpy(zero_copy_only=False), return_inverse=True, return_counts=True
    )
    ranks = np.cumsum(occurrences) - (occurrences + 1) / 2
    return ranks[places][:, np.newaxis] / len(places)


def words_help(texts: Sequence[str], target: np.ndarray) -> bool:
    """Returns whether the words of a column predict unseen rows better than its categories alone.

    Args:
      texts: the values of the column, [rows]; empty where a value is missing.
      target: the label as numbers, [rows, outputs].
    """
    words = [_first_words(text) for text in texts]
    # An array of NumPy would need the memory of the longest text for each text.
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    codes = np.array([numbers[text] for text in texts])
    part = np.arange(len(texts)) % _FOLDS
    gains, errors = np.zeros(len(texts)), 0.0
    for fold in range(_FOLDS):
        seen, unseen = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
        by_category = _means(codes, target, seen)
        flags = _flags(words, codes, seen)
        without = _squared_errors(by_category, target, seen, unseen)
        gains[unseen] = without - _squared_errors(
            np.hstack([by_category, flags]), target, seen, unseen
        )
        errors += without.sum()
    mean, error = gains.mean(), gains.std() / math.sqrt(len(gains))
    return bool(mean > max(_MIN_ERRORS * error, _MIN_GAIN * errors / len(texts)))


def _first_words(text: str) -> frozenset[str]:
    """Returns the words in lower case that a model with `words` reads."""
    found = islice(_WORD.finditer(text.lower()), MAX_WORDS)
    return frozenset(match.group() for match in found)


def _means(codes: np.ndarray, target: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Returns the mean label of each row's category, [rows, outputs].

    The means come from the rows in `seen`: of a row in `seen`, from those of the other half of it.
    """
    half = np.arange(len(seen)) % 2
    sources = [seen[half == 1], seen[half == 0], seen]
    means = [_smoothed(codes, target, source) for source in sources]
    result = means[2][codes]
    for side in (0, 1):
        result[seen[half == side]] = means[side][codes[seen[half == side]]]
    return result


def _smoothed(codes: np.ndarray, target: np.ndarray, rows: np.ndarray) -> np.ndarray:
    sums = np.zeros((codes.max() + 1, target.shape[1]))
    np.add.at(sums, codes[rows], target[rows])
    counts = np.bincount(codes[rows], minlength=len(sums))[:, np.newaxis]
    return (sums + _SMOOTHING * target[rows].mean(0)) / (counts + _SMOOTHING)


def _flags(words: Sequence[frozenset[str]], codes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Returns which frequent words of the rows in `seen` each row contains, [rows, words].

    A word that only one category contains is left out, as it says what the category says.
    """
    counts = Counter(word for row in seen for word in words[row])
    of_categories = Counter(
        word for row in dict(zip(codes[seen], seen, strict=True)).values() for word in words[row]
    )
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:WORDS]
    frequent = [word for word in frequent if of_categories[word] > 1]
    places = {word: place for place, word in enumerate(frequent)}
    flags = np.zeros((len(words), len(frequent)))
    for row, found in enumerate(words):
        flags[row, [places[word] for word in found if word in places]] = 1
    return flags


def _squared_errors(
    inputs: np.ndarray, target: np.ndarray, seen: np.ndarray, unseen: np.ndarray
) -> np.ndarray:
    """Returns the squared errors of ridge regression for the rows in `unseen`, [unseen]."""
    center, mean = inputs[seen].mean(0), target[seen].mean(0)
    centered = inputs - center
    products = centered[seen].T @ centered[seen] + _RIDGE * np.eye(inputs.shape[1])
    weights = np.linalg.solve(products, centered[seen].T @ (target[seen] - mean))
    return ((centered[unseen] @ weights + mean - target[unseen]) ** 2).sum(1)
