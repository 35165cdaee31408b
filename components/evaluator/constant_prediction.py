"""What always predicting the same comes to, and how much better luck alone would look.

A model that is no better has learnt nothing. The constant is the best one in hindsight: that of the
examples that are evaluated. A model of noise beats it in half of all runs, if only by little, so
that an allowance is made: what such a model exceeds in one run of twenty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from components.evaluator.dependence import design_effect

_CONFIDENCE = 0.95
_Z = float(stats.norm.ppf(_CONFIDENCE))
_NEARLY = 1e-6
"""TFMA's sums differ from NumPy's by less, relative to the value."""


@dataclass(frozen=True)
class ConstantPrediction:
    """What a metric is where one and the same is always predicted."""

    metric: str
    value: float
    needed: float
    """What a model has to reach; further than `value` by the allowance."""
    examples: int
    """How many were looked at."""

    @property
    def is_of_a_loss(self) -> bool:
        """Whether less is better."""
        return self.needed < self.value

    @property
    def is_beaten_by_luck(self) -> bool:
        """Whether there are so few examples that noise is always right in more than one run of
        twenty, so that even a perfect model could not be told from it.
        """
        best = 0.0 if self.is_of_a_loss else 1.0
        return abs(self.needed - best) <= 2 * math.sqrt(_NEARLY) * abs(self.value - best)

    def is_beaten_by(self, value: float) -> bool:
        """Returns whether a model's metric is better by more than luck."""
        return value <= self.needed if self.is_of_a_loss else value >= self.needed


def predict_constant(
    metric: str, labels: np.ndarray, units: np.ndarray | None = None
) -> ConstantPrediction | None:
    """Returns the best constant prediction by a metric in `FORMULAS`.

    Args:
      metric: its name.
      labels: [examples]; indices of classes, 0 and 1 where the task is binary, or numbers.
      units: [examples], numbers from 0 that are equal where examples depend on one another; None
        where none do.

    Returns:
      None where the labels are all the same, so that a constant is as good as anything.
    """
    labels = labels.astype(np.float64)
    if not len(labels) or labels.min() == labels.max():
        return None
    z = _Z if units is None else _dependent_quantile(metric, labels, units)
    value, needed = FORMULAS[metric](labels, z)
    return ConstantPrediction(metric, float(value), float(needed), len(labels))


Formula = Callable[[np.ndarray, float], tuple[float, float]]
"""From labels and a quantile of the normal distribution to the metric of the best constant, and to
what is needed."""


def _dependent_quantile(metric: str, labels: np.ndarray, units: np.ndarray) -> float:
    """Returns the quantile for dependent examples: Student's t, times the root of the design
    effect.
    """
    indicators = labels[:, None] == np.unique(labels) if metric in OF_CLASSES else labels
    factor, count = design_effect(indicators, units)
    return float(stats.t.ppf(_CONFIDENCE, max(count - 1, 1))) * math.sqrt(factor)


def _accuracy(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the share of the most frequent class."""
    share = np.unique(labels, return_counts=True)[1].max() / len(labels)
    return share, share + _error_of_share(share, len(labels), z)


def _auc(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Half, with the variance of the rank-sum statistic (Mann and Whitney, 1947)."""
    positive = labels.sum()
    variance = (len(labels) + 1) / (12 * positive * (len(labels) - positive))
    return 0.5, 0.5 + min(z * math.sqrt(variance), 0.5 * (1 - _NEARLY))


def _mean_recall(labels: np.ndarray, z: float) -> tuple[float, float]:
    """One class is found always and the others never."""
    counts = np.unique(labels, return_counts=True)[1]
    share = 1 / len(counts)
    error = math.sqrt(np.sum(share * (1 - share) / counts)) / len(counts)
    return share, share + min(z * error, (1 - share) * (1 - _NEARLY))


def _positive_share(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Precision where all are called positive, and where scores say nothing."""
    share = labels.mean()
    return share, share + _error_of_share(share, len(labels), z)


def _f1(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Where all are called positive: recall is 1, and precision the share of them."""
    share, needed = _positive_share(labels, z)
    return 2 * share / (1 + share), 2 * needed / (1 + needed)


def _log_loss(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the entropy of the classes; twice the gain in likelihood has a chi-squared
    distribution.
    """
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    entropy = -np.sum(shares * np.log(shares))
    return entropy, entropy - min(z**2 / (2 * len(labels)), entropy * (1 - _NEARLY))


def _mse(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the variance; noise explains no more of it than its squared correlation by chance."""
    variance = labels.var()
    return variance, variance * (1 - _explained_by_chance(labels, z))


def _rmse(labels: np.ndarray, z: float) -> tuple[float, float]:
    variance, needed = _mse(labels, z)
    return math.sqrt(variance), math.sqrt(needed)


def _mae(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the mean distance from the median."""
    distance = np.abs(labels - np.median(labels)).mean()
    return distance, distance * math.sqrt(1 - _explained_by_chance(labels, z))


def _r2(labels: np.ndarray, z: float) -> tuple[float, float]:
    return 0.0, _explained_by_chance(labels, z)


def _poisson_deviance(labels: np.ndarray, z: float) -> tuple[float, float]:
    """That of the mean; what noise gains has a chi-squared distribution, by the dispersion."""
    mean = labels.mean()
    logs = np.log(np.where(labels > 0, labels, 1) / mean)
    deviance = 2 * np.mean(labels * logs - labels + mean)
    gain = labels.var() / mean * z**2 / len(labels)
    return deviance, deviance - min(gain, deviance * (1 - _NEARLY))


FORMULAS: dict[str, Formula] = {
    "accuracy": _accuracy,
    "auc": _auc,
    "auc_precision_recall": _positive_share,
    "average_precision": _positive_share,
    "balanced_accuracy": _mean_recall,
    "macro_recall": _mean_recall,
    "precision": _positive_share,
    "f1": _f1,
    "log_loss": _log_loss,
    "mse": _mse,
    "rmse": _rmse,
    "mae": _mae,
    "r2": _r2,
    "squared_correlation": _r2,
    "poisson_deviance": _poisson_deviance,
}
"""By the name of the metric in a config."""
OF_CLASSES = frozenset(FORMULAS) - {
    "mse", "rmse", "mae", "r2", "squared_correlation", "poisson_deviance"
}  # fmt: skip
"""Those of tasks whose labels are classes."""


def _error_of_share(share: float, examples: int, z: float) -> float:
    """Never so much that being always right would not do."""
    return min(z * math.sqrt(share * (1 - share) / examples), (1 - share) * (1 - _NEARLY))


def _explained_by_chance(labels: np.ndarray, z: float) -> float:
    """Returns the squared correlation with numbers that have nothing to do with the labels."""
    return min(z**2 / len(labels), 1 - _NEARLY)
