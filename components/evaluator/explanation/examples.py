"""The rows with the largest losses, with the shares of their columns, words and pixels."""

from __future__ import annotations

import base64
import functools
import io
import time
from collections.abc import Sequence

import numpy as np
from PIL import Image

from components.evaluator.explanation.prediction import ExplainedModel
from components.evaluator.explanation.record import Share, WorstExample, WorstExamples
from components.evaluator.explanation.sample import Sample
from components.evaluator.explanation.values import encode_png, make_thumbnail, show_text
from components.parts import Parts
from trainer_module.attribution import (
    PART_CALLS,
    Shares,
    additive_shares,
    picture_saliency,
    text_shares,
)
from trainer_module.export.interface import RawColumn

_MAX_ROWS, _MAX_COLUMNS, _MAX_PICTURES = 20, 50, 4
_MAX_PLAYERS, _MAX_SHARES = 12, 8
_MIN_PERMUTATIONS, _MAX_PERMUTATIONS = 4, 64
_BACKGROUND_ROWS = 256
_MIN_WORDS = 3
"""The mean number of words of a column of text with shares of words."""


def find_worst_examples(
    model: ExplainedModel,
    sample: Sample,
    columns: Sequence[RawColumn],
    seconds: float,
    seed: int,
    parts: Parts,
) -> tuple[WorstExamples, list[str]]:
    """Returns the rows with the largest losses, and notes on what was left out.

    Args:
      sample: the rows; rows of weight 0 are never shown.
      columns: the columns, beginning with the most important one.
      seconds: the time for the predictions of the shares.
      parts: computes the shares of columns, pixels and words, of which each may fail.
    """
    losses = model.target.losses(sample.outputs, sample.labels)
    order = np.argsort(np.where(sample.weights > 0, -losses, np.inf), kind="stable")
    worst = order[: min(_MAX_ROWS, int(np.count_nonzero(sample.weights > 0)))]
    rows, notes = sample.take(worst), list[str]()
    examples = [_describe(model, rows, losses[worst], row, columns) for row in range(len(rows))]
    stop = time.perf_counter() + seconds

    def explain_columns() -> float | None:
        """Adds the shares of the columns; returns the mean prediction that all rows share."""
        shares = _column_shares(model, sample, rows, columns, seconds, seed)
        if shares is None:
            speed = f"the model predicts only {model.rows_per_second:,.0f} rows per second"
            notes.append(f"no shares of the columns in the worst examples: {speed}")
            return None
        _add_shares(examples, rows, shares, columns)
        # The rows of three or more classes explain different outputs.
        return float(shares.base[0]) if len(model.target.classes) <= 2 else None

    has_shares = len(columns) > 1 and bool(examples)
    base = parts.make("shares of columns", explain_columns, None) if has_shares else None
    pixels, words = (
        functools.partial(add, model, rows, examples, columns, stop, seed)
        for add in (_add_saliency, _add_words)
    )
    parts.make("shares of pixels", pixels, None)
    parts.make("shares of words", words, None)
    return WorstExamples(base=base, rows=examples), notes


def _describe(
    model: ExplainedModel,
    rows: Sample,
    losses: np.ndarray,
    row: int,
    columns: Sequence[RawColumn],
) -> WorstExample:
    shown = [column for column in columns if not column.picture][:_MAX_COLUMNS]
    pictures = [column for column in columns if column.picture][:_MAX_PICTURES]
    thumbnails = {c.name: make_thumbnail(rows.columns[c.request][row]) for c in pictures}
    return WorstExample(
        label=model.target.show_label(rows.labels[row]),
        prediction=model.target.show(rows.outputs[row]),
        loss=float(losses[row]),
        values={c.name: show_text(_cell(rows, c, row), c) for c in shown},
        images={name: encode_png(image) for name, image in thumbnails.items() if image},
    )


def _cell(rows: Sample, column: RawColumn, row: int) -> object:
    values = rows.columns[column.request][row]
    return values[0] if column.width == 1 and isinstance(values, np.ndarray) else values


def _column_shares(
    model: ExplainedModel,
    sample: Sample,
    rows: Sample,
    columns: Sequence[RawColumn],
    seconds: float,
    seed: int,
) -> Shares | None:
    """Returns the shares of the most important columns and of all others together, or None if the
    model is too slow.
    """
    names = [column.request for column in columns]
    players = [[name] for name in names[:_MAX_PLAYERS]]
    if len(names) > _MAX_PLAYERS:
        players.append(names[_MAX_PLAYERS:])
    calls = model.capacity(seconds) - len(rows) - _BACKGROUND_ROWS
    permutations = calls // (len(rows) * (len(players) - 1))
    if permutations < _MIN_PERMUTATIONS:
        return None
    return additive_shares(
        model.predict,
        rows.columns,
        sample.take(slice(_BACKGROUND_ROWS)).columns,
        min(permutations // 2 * 2, _MAX_PERMUTATIONS),
        seed,
        outputs=model.target.explained_outputs(rows.outputs),
        players=players,
    )


def _add_shares(
    examples: Sequence[WorstExample], rows: Sample, shares: Shares, columns: Sequence[RawColumn]
) -> None:
    by_request = {column.request: column for column in columns}
    for row, example in enumerate(examples):
        values, example.base = shares.values[row], float(shares.base[row])
        for number in np.argsort(-np.abs(values), kind="stable")[:_MAX_SHARES]:
            names = shares.players[number]
            column = by_request[names[0]]
            is_one = len(names) == 1
            text = show_text(_cell(rows, column, row), column) if not column.picture else ""
            example.shares.append(
                Share(
                    column=column.name if is_one else f"{len(names):,} other columns",
                    value=text if is_one else "",
                    share=float(values[number]),
                )
            )


def _add_saliency(
    model: ExplainedModel,
    rows: Sample,
    examples: Sequence[WorstExample],
    columns: Sequence[RawColumn],
    stop: float,
    seed: int,
) -> None:
    """Adds the strength of each pixel of the first rows, until the time is over."""
    features = {feature.name: feature for feature in model.interface.features}
    pictures = {
        column.name: features[column.name].request
        for column in columns
        if column.picture and column.name in features and len(features[column.name].shape) == 3
    }
    for row, example in enumerate(examples):
        for name, request in pictures.items():
            if name in example.images and time.perf_counter() + model.seconds(PART_CALLS) < stop:
                shares = _pixel_shares(model, rows, row, request, seed)
                example.saliency[name] = _draw(shares, example.images[name])


def _pixel_shares(
    model: ExplainedModel, rows: Sample, row: int, request: str, seed: int
) -> np.ndarray:
    """Returns the shares of the pixels of a transformed picture, [height, width]."""
    columns = {name: values[row : row + 1] for name, values in rows.columns.items()}
    features = {name: value.numpy() for name, value in model.transform(columns).items()}
    output = model.target.explained_outputs(rows.outputs)[row]

    def predict(pictures: np.ndarray) -> np.ndarray:
        others = {name: np.repeat(value, len(pictures), 0) for name, value in features.items()}
        return model.apply(others | {request: pictures})[:, output]

    return picture_saliency(predict, features[request][0], seed)[0]


def _draw(shares: np.ndarray, picture: str) -> str:
    """Returns the strength of pixels as a grey PNG file in base64, white for the strongest.

    Args:
      shares: the shares, [height, width].
      picture: the thumbnail, a PNG file in base64, whose size the result has.
    """
    with Image.open(io.BytesIO(base64.b64decode(picture))) as thumbnail:
        size = thumbnail.size
    strength = np.abs(shares) / max(float(np.abs(shares).max()), 1e-12)
    grey = Image.fromarray((255 * strength).astype(np.uint8), "L")
    return encode_png(grey.resize(size, Image.Resampling.NEAREST))


def _add_words(
    model: ExplainedModel,
    rows: Sample,
    examples: Sequence[WorstExample],
    columns: Sequence[RawColumn],
    stop: float,
    seed: int,
) -> None:
    """Adds the shares of the words of the most important text, until the time is over."""
    text = next((column.request for column in columns if _is_text(rows, column)), None)
    explained = model.target.explained_outputs(rows.outputs)
    for row, example in enumerate(examples):
        if text is None or time.perf_counter() + model.seconds(PART_CALLS) > stop:
            return
        one = {name: values[row : row + 1] for name, values in rows.columns.items()}

        def predict(
            texts: list[str], one: dict[str, np.ndarray] = one, output: int = int(explained[row])
        ) -> np.ndarray:
            changed = np.array([words.encode() for words in texts], object)
            others = {name: np.repeat(values, len(texts), 0) for name, values in one.items()}
            shaped = changed.reshape(-1, *one[text].shape[1:])
            return model.predict(others | {text: shaped})[:, output]

        written = one[text].reshape(-1)[0].decode(errors="replace")
        example.words = text_shares(predict, written, seed)[0]


def _is_text(rows: Sample, column: RawColumn) -> bool:
    """Returns whether a column has texts of several words."""
    if column.dtype != "string" or column.width != 1 or column.forms or column.picture:
        return False
    words = [len(value.split()) for value in rows.columns[column.request].reshape(-1).tolist()]
    return float(np.mean(words)) >= _MIN_WORDS
