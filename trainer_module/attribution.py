"""Additive shares of columns, words and patches of pictures in single predictions.

All shares are Shapley values, sampled by permutations (Strumbelj and Kononenko, "Explaining
prediction models and individual predictions with feature contributions", Knowledge and Information
Systems 41, 2014). The players join in a random order, and a player's share is the mean change of
the prediction when the player joins. Each order is followed by its reverse (antithetic sampling;
Mitchell et al., "Sampling permutations for Shapley value estimation", JMLR 23, 2022).

The method needs predictions only, so that it explains networks, trees and ensembles alike, and it
is complete: along each order the changes add up to a difference of two predictions, so that the
shares and the base add up to the prediction except for rounding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Columns = Mapping[str, np.ndarray]
"""Columns by name, [rows, ...] each: numbers, padded lists, or bytes (dtype object)."""
Predict = Callable[[dict[str, np.ndarray]], np.ndarray]
"""A function from columns to predictions, [rows] or [rows, outputs]."""

PERMUTATIONS = 64
"""The default number of permutations; each uses another row of the background."""
MAX_PLAYERS = 20
"""The default number of columns with a share of their own."""
_BATCH_ROWS, _BATCH_BYTES = 4096, 64 << 20
"""The maximum rows of a call of a model, and the maximum bytes of its columns or predictions."""
_SCREENED_ROWS = 32
"""The maximum number of rows by which the strongest columns are chosen."""
_SCREENING_CALLS = 200_000
"""The maximum number of predictions for the choice of the strongest columns."""
PART_CALLS = 1_000
"""The maximum number of predictions for the words of a text, or the patches of a picture."""
_MAX_WORDS = 48
"""The maximum number of words with a share of their own; longer texts are divided into phrases."""
_GRID = 7
"""The number of patches along the longer side of a picture."""
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]\s*|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+\s*"
)
"""A word with the spaces after it; in Chinese and Japanese, a character."""


@dataclass(frozen=True)
class Shares:
    """The additive shares of groups of columns in the predictions of rows."""

    players: tuple[tuple[str, ...], ...]
    """The groups of columns that move together. Most groups have one column."""
    values: np.ndarray
    """The share of each group, [rows, groups] float64."""
    base: np.ndarray
    """The mean prediction of the used rows of the background, [rows] float64. It differs by row
    only if the rows have different explained outputs."""


def additive_shares(
    predict: Predict,
    rows: Columns,
    background: Columns,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    *,
    outputs: np.ndarray | None = None,
    players: Sequence[Sequence[str]] | None = None,
) -> Shares:
    """Returns the additive shares of columns in the predictions of rows.

    In each permutation, the columns of a background row are replaced by those of the explained row
    one after the other. All rows are explained by the same permutations and background rows. These
    are spread evenly over the predictions of the background. A call costs `rows * permutations *
    (players - 1)` predictions, in batches of at most 4,096 rows.

    Args:
      predict: the model. It must predict each row independently of the others.
      rows: the rows to explain.
      background: the rows with which they are compared, at least one, with the same columns,
        dtypes and shapes of a row.
      permutations: the number of permutations; an odd number is increased by one.
      seed: the seed of the permutations.
      outputs: the index of the explained output of each row, [rows]; None if `predict` returns
        [rows].
      players: the groups of columns that move together, without overlap; by default each column.
        `choose_players` bounds their number.

    Returns:
      The shares. `values.sum(1) + base` is the prediction of each row.
    """
    groups = tuple(map(tuple, players if players is not None else [[name] for name in rows]))
    count, others = len(next(iter(rows.values()))), len(next(iter(background.values())))
    joined = {name: np.concatenate([rows[name], background[name]]) for name in rows}
    model = _Batches(predict, joined, groups)
    chosen = np.zeros(count, np.int64) if outputs is None else np.asarray(outputs, np.int64)
    predicted = model.whole(0, count)
    of_background = model.whole(count, others)
    orders = _orders(len(groups), permutations, seed)
    used = _spread(of_background, len(orders), seed)
    ranks = np.argsort(orders, axis=1)
    values = np.zeros((count, len(groups)))
    top = predicted[np.arange(count), chosen].astype(np.float64)
    bottom = of_background[used][:, chosen].T.astype(np.float64)
    steps = len(orders) * (len(groups) - 1)
    size = max(1, model.batch // max(1, steps))
    for start in range(0, count, size):
        part = slice(start, start + size)
        inner = model.paths(np.arange(count)[part], count + used, ranks, chosen[part])
        values[part] = _mean_steps(bottom[part], inner, top[part], ranks)
    return Shares(groups, values, bottom.mean(1))


def choose_players(
    predict: Predict,
    rows: Columns,
    background: Columns,
    seed: int = 0,
    *,
    outputs: np.ndarray | None = None,
    most: int = MAX_PLAYERS,
) -> tuple[tuple[str, ...], ...]:
    """Returns the columns with a share of their own, and all other columns as the last group.

    With more than `most` columns, those with the largest mean absolute share in a few rows are on
    their own, estimated by one permutation and its reverse.

    Args:
      predict: the model.
      rows: the rows to explain.
      background: the rows with which they are compared.
      seed: the seed of the permutations.
      outputs: the index of the explained output of each row; None if `predict` returns [rows].
      most: the maximum number of columns on their own.
    """
    if len(rows) <= most:
        return tuple((name,) for name in rows)
    count = len(next(iter(rows.values())))
    screened = min(count, _SCREENED_ROWS, max(4, _SCREENING_CALLS // (2 * len(rows))))
    index = np.linspace(0, count - 1, screened).astype(np.int64)
    some = {name: values[index] for name, values in rows.items()}
    explained = None if outputs is None else np.asarray(outputs)[index]
    shares = additive_shares(predict, some, background, 2, seed, outputs=explained)
    strength = np.abs(shares.values).mean(0)
    strongest = set(np.argsort(-strength, kind="stable")[:most].tolist())
    alone = [(name,) for number, name in enumerate(rows) if number in strongest]
    others = tuple(name for number, name in enumerate(rows) if number not in strongest)
    return (*alone, others)


class _Batches:
    """A model, and its predictions for mixtures of rows in batches of bounded size."""

    def __init__(self, predict: Predict, columns: Columns, groups: Sequence[Sequence[str]]) -> None:
        self._predict, self._columns, self._groups = predict, columns, groups
        row_bytes = sum(values[:1].nbytes for values in columns.values())
        self.batch = int(np.clip(_BATCH_BYTES // max(1, row_bytes), 1, _BATCH_ROWS))

    def whole(self, start: int, count: int) -> np.ndarray:
        """Returns the predictions of unmixed rows, [count, outputs]."""
        stop = start + count
        parts = [
            self._call({n: v[at : min(at + self.batch, stop)] for n, v in self._columns.items()})
            for at in range(start, stop, self.batch)
        ]
        return np.concatenate(parts)

    def paths(
        self, rows: np.ndarray, others: np.ndarray, ranks: np.ndarray, outputs: np.ndarray
    ) -> np.ndarray:
        """Returns the predictions between a background row and a row.

        Args:
          rows: the indices of the explained rows, [rows].
          others: the index of the background row of each permutation, [permutations].
          ranks: the position of each group in each permutation, [permutations, groups].
          outputs: the explained output of each row, [rows].

        Returns:
          The predictions after 1, 2, ..., groups - 1 groups have joined, [rows, permutations,
          groups - 1].
        """
        shape = len(rows), len(others), ranks.shape[1] - 1
        values = np.zeros(int(np.prod(shape)))
        for start in range(0, len(values), self.batch):
            flat = np.arange(start, min(start + self.batch, len(values)))
            row, permutation, step = np.unravel_index(flat, shape)
            joined = ranks[permutation] <= step[:, np.newaxis]
            mixed = dict[str, np.ndarray]()
            for group, names in enumerate(self._groups):
                index = np.where(joined[:, group], rows[row], others[permutation])
                mixed |= {name: self._columns[name][index] for name in names}
            values[flat] = self._call(mixed)[np.arange(len(flat)), outputs[row]]
        return values.reshape(shape)

    def _call(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        predicted = np.asarray(self._predict(columns))
        predicted = predicted.reshape(len(predicted), -1)
        self.batch = min(self.batch, max(1, _BATCH_BYTES // predicted[:1].nbytes))
        return predicted


def _orders(players: int, permutations: int, seed: int) -> np.ndarray:
    """Returns permutations, each followed by its reverse, [permutations, players]."""
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(players) for _ in range((permutations + 1) // 2)]
    return np.stack([order for drawn in orders for order in (drawn, drawn[::-1])])


def _spread(predicted: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns indices of rows that are spread evenly over the predictions, in random order.

    Args:
      predicted: the predictions, [rows, outputs]. Rows are sorted by the largest output.
      count: the number of indices.
      seed: the seed of the order.
    """
    by_prediction = np.lexsort((predicted.max(1), predicted.argmax(1)))
    even = by_prediction[((np.arange(count) + 0.5) * len(predicted) / count).astype(np.int64)]
    return np.random.default_rng(seed).permutation(even)


def _mean_steps(
    bottom: np.ndarray, inner: np.ndarray, top: np.ndarray, ranks: np.ndarray
) -> np.ndarray:
    """Returns the mean change by which each player moves the prediction, [rows, players].

    Args:
      bottom: the prediction without any player, [rows, permutations].
      inner: the predictions between, [rows, permutations, players - 1].
      top: the prediction with all players, [rows].
      ranks: the position of each player in each permutation, [permutations, players].
    """
    last = np.broadcast_to(top[:, np.newaxis, np.newaxis], (*bottom.shape, 1))
    changes = np.diff(np.concatenate([bottom[..., np.newaxis], inner, last], axis=2), axis=2)
    mean: np.ndarray = np.take_along_axis(changes, ranks[np.newaxis], axis=2).mean(1)
    return mean


def part_shares(
    predict: Callable[[np.ndarray], np.ndarray], parts: int, seed: int = 0
) -> tuple[np.ndarray, float]:
    """Returns the additive shares of the parts of one input.

    At most about 1,000 inputs are predicted: the more parts, the fewer permutations.

    Args:
      predict: a function from the parts that are kept, [batch, parts] bool, to predictions,
        [batch].
      parts: the number of parts, at least 1.
      seed: the seed of the permutations.

    Returns:
      The shares, [parts] float64, and the prediction without any part. Their sum is the prediction.
    """
    orders = _orders(parts, int(np.clip(PART_CALLS // parts, 4, PERMUTATIONS)), seed)
    ranks = np.argsort(orders, axis=1)
    joined = ranks[:, np.newaxis] < np.arange(parts + 1)[:, np.newaxis]
    kept, number = np.unique(joined.reshape(-1, parts), axis=0, return_inverse=True)
    values = np.asarray(predict(kept), np.float64)[number].reshape(joined.shape[:2])
    shares = _mean_steps(
        values[np.newaxis, :, 0], values[np.newaxis, :, 1:-1], values[:1, -1], ranks
    )
    return shares[0], float(values[0, 0])


def text_shares(
    predict: Callable[[list[str]], np.ndarray], text: str, seed: int = 0
) -> tuple[list[tuple[str, float]], float]:
    """Returns the additive shares of the words of a text; words are left out of the text.

    Args:
      predict: a function from texts to predictions, [texts].
      text: the text. In texts of more than 48 words, consecutive words form 48 phrases.
      seed: the seed of the permutations.

    Returns:
      The words in order, each with its share, and the prediction of the empty text. The shares and
      this prediction add up to the prediction of the text without leading spaces.
    """
    words = _WORD.findall(text)
    if not words:
        return [], float(np.asarray(predict([""]))[0])
    phrases = ["".join(part) for part in np.array_split(np.array(words, object), _MAX_WORDS)]
    phrases = [phrase for phrase in phrases if phrase]

    def predict_kept(kept: np.ndarray) -> np.ndarray:
        return predict(
            ["".join(p for p, keep in zip(phrases, row, strict=True) if keep) for row in kept]
        )

    shares, base = part_shares(predict_kept, len(phrases), seed)
    return list(zip((phrase.strip() for phrase in phrases), shares.tolist(), strict=True)), base


def picture_saliency(
    predict: Callable[[np.ndarray], np.ndarray], picture: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, float]:
    """Returns the additive shares of the patches of a picture.

    A patch that is left out has the mean colour of the picture. The longer side has 7 patches.

    Args:
      predict: a function from pictures, [batch, height, width, channels] of the picture's dtype, to
        predictions, [batch]. A batch has at most 64 pictures.
      picture: the picture, [height, width, channels].
      seed: the seed of the permutations.

    Returns:
      For each pixel the share of its patch, [height, width] float64, and the prediction of a
      picture of the mean colour. This prediction and the shares of all patches add up to the
      prediction.
    """
    patches = _patches(picture.shape[0], picture.shape[1])
    blank = picture.mean((0, 1), keepdims=True).astype(picture.dtype)

    def predict_kept(kept: np.ndarray) -> np.ndarray:
        parts = [
            predict(np.where(kept[start : start + 64][:, patches][..., np.newaxis], picture, blank))
            for start in range(0, len(kept), 64)
        ]
        return np.concatenate(parts)

    shares, base = part_shares(predict_kept, int(patches.max()) + 1, seed)
    return shares[patches], base


def _patches(height: int, width: int) -> np.ndarray:
    """Returns the number of the patch of each pixel, [height, width]."""
    side = max(1.0, max(height, width) / _GRID)
    rows, columns = (np.arange(size) / side for size in (height, width))
    across = int(columns[-1]) + 1
    numbers: np.ndarray = rows.astype(np.int64)[:, np.newaxis] * across + columns.astype(np.int64)
    return numbers
