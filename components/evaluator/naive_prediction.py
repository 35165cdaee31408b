"""The naive prediction of a series: the label some time ago, such as on the same day a year before.

A model of a series is useful only if it predicts better than a past label. The naive prediction is
the best of the columns of `data.lags`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from components.copying import read_text, write_text

_FILE = "naive_prediction.json"
"""The file of the naive prediction, in the folder of TFMA's files."""


def _mse(labels: np.ndarray, predictions: np.ndarray) -> float:
    return float(np.mean((labels - predictions) ** 2))


_METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "mae": lambda labels, predictions: float(np.mean(np.abs(labels - predictions))),
    "rmse": lambda labels, predictions: math.sqrt(_mse(labels, predictions)),
    "mse": _mse,
}
"""The metrics by name in a config; lower is better."""


@dataclass(frozen=True)
class NaivePrediction:
    """The past label that predicts best, by metric."""

    columns: dict[str, str]
    """The column of the past label."""
    values: dict[str, float]
    """The metric's value if the column is the prediction."""

    def compare(self, measured: Mapping[str, float]) -> str:
        """Returns a sentence that compares a model with the past label, in the first metric that
        both have; an empty string without such a metric.
        """
        name = next((name for name in measured if name in self.values), None)
        if name is None:
            return ""
        value, past = measured[name], self.values[name]
        compared = (
            f"{name} is {value:.4g}, and {past:.4g} if {self.columns[name]} is the prediction"
        )
        if value < past:
            return f"naive prediction: {compared}"
        return (
            f"the model is not better than a past label: {compared}; check the features, or add"
            " past labels to data.lags"
        )


def predict_naively(labels: np.ndarray, past: Mapping[str, np.ndarray]) -> NaivePrediction | None:
    """Returns the best past label for each metric, or None if no row has a past label.

    Args:
      labels: the labels, [examples].
      past: the past labels by column, [examples] each; NaN, for which the mean of the labels is
        predicted, if it is missing.
    """
    known = {name: values for name, values in past.items() if not np.isnan(values).all()}
    if not known or not len(labels):
        return None
    filled = {n: np.where(np.isnan(v), labels.mean(), v) for n, v in known.items()}
    found = {
        metric: min((measure(labels, values), name) for name, values in filled.items())
        for metric, measure in _METRICS.items()
    }
    return NaivePrediction(
        {metric: name for metric, (_, name) in found.items()},
        {metric: value for metric, (value, _) in found.items()},
    )


def write_naive_prediction(naive: NaivePrediction, uri: str) -> None:
    """Writes the naive prediction into the folder of an evaluation."""
    write_text(json.dumps(asdict(naive)), uri, _FILE)


def read_naive_prediction(uri: str) -> NaivePrediction | None:
    """Returns the naive prediction that an evaluation stored, or None."""
    text = read_text(uri, _FILE)
    return None if text is None else NaivePrediction(**json.loads(text))
