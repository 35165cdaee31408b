"""The baseline: the best constant prediction, and the margin by which a model has to beat it.

A model that is not better than a constant has learnt nothing. The baseline is the constant that is
best for the evaluated examples. By chance, a model without skill beats the baseline in about half
of all runs, and exceeds the margin in 5 % of all runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from components.evaluator.dependence import design_effect

_CONFIDENCE = 0.95
"""The probability that a model without skill does not exceed the margin."""
_Z = float(stats.norm.ppf(_CONFIDENCE))
_TOLERANCE = 1e-6
"""An upper bound of the relative difference between TFMA's and NumPy's sums."""


@dataclass(frozen=True)
class ConstantPrediction:
    """The metric's value for the best constant prediction, and the value that a model has to
    reach.
    """

    metric: str
    value: float
    needed: float
    """The value that a model has to reach: better than `value` by the margin."""
    examples: int
    """The number of evaluated examples."""

    @property
    def lower_is_better(self) -> bool:
        """Whether lower values of the metric are better."""
        return self.needed < self.value

    @property
    def is_inconclusive(self) -> bool:
        """Whether there are too few examples to distinguish a perfect model from a model without
        skill.

        Then a model without skill is right on all examples in more than 5 % of all runs.
        """
        perfect = 0.0 if self.lower_is_better else 1.0
        return abs(self.needed - perfect) <= 2 * math.sqrt(_TOLERANCE) * abs(self.value - perfect)

    def is_beaten_by(self, value: float) -> bool:
        """Returns whether a model's metric is better by more than the margin."""
        return value <= self.needed if self.lower_is_better else value >= self.needed


def predict_constant(
    metric: str, labels: np.ndarray, units: np.ndarray | None = None
) -> ConstantPrediction | None:
    """Returns the best constant prediction for a metric in `FORMULAS`.

    Args:
      labels: [examples]; indices of classes, 0 and 1 for a binary task, or numbers.
      units: [examples], the number of each example's unit, counted from 0; examples of the same
        unit depend on one another. None if all examples are independent.

    Returns:
      The constant prediction, or None if there are no labels or all labels are equal.
    """
    labels = labels.astype(np.float64)
    if not len(labels) or labels.min() == labels.max():
        return None
    z = _Z if units is None else _dependent_quantile(metric, labels, units)
    value, needed = FORMULAS[metric](labels, z)
    return ConstantPrediction(metric, float(value), float(needed), len(labels))


Formula = Callable[[np.ndarray, float], tuple[float, float]]
"""A function that returns the metric of the best constant, and the value that a model has to reach.

Its arguments are the labels and a quantile of the normal distribution."""


def _dependent_quantile(metric: str, labels: np.ndarray, units: np.ndarray) -> float:
    """Returns the quantile for dependent examples: Student's t times the root of the design
    effect.
    """
    indicators = (
        labels[:, None] == np.unique(labels) if metric in CLASSIFICATION_METRICS else labels
    )
    factor, unit_count = design_effect(indicators, units)
    return float(stats.t.ppf(_CONFIDENCE, max(unit_count - 1, 1))) * math.sqrt(factor)


def _accuracy(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the accuracy of the most frequent class, which is its share."""
    share = np.unique(labels, return_counts=True)[1].max() / len(labels)
    return share, share + _share_margin(share, len(labels), z)


def _auc(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns 0.5; the margin uses the variance of the rank-sum statistic (Mann and Whitney,
    1947).
    """
    positive = labels.sum()
    variance = (len(labels) + 1) / (12 * positive * (len(labels) - positive))
    return 0.5, 0.5 + min(z * math.sqrt(variance), 0.5 * (1 - _TOLERANCE))


def _mean_recall(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the mean recall if every prediction is the same class."""
    counts = np.unique(labels, return_counts=True)[1]
    share = 1 / len(counts)
    error = math.sqrt(np.sum(share * (1 - share) / counts)) / len(counts)
    return share, share + min(z * error, (1 - share) * (1 - _TOLERANCE))


def _positive_share(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the precision if every prediction is positive, or if scores are constant."""
    share = labels.mean()
    return share, share + _share_margin(share, len(labels), z)


def _f1(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the F1 score if every prediction is positive: recall 1, precision the positive
    share.
    """
    share, needed = _positive_share(labels, z)
    return 2 * share / (1 + share), 2 * needed / (1 + needed)


def _log_loss(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the entropy of the classes.

    Twice the gain in log-likelihood by chance has a chi-squared distribution.
    """
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    entropy = -np.sum(shares * np.log(shares))
    return entropy, entropy - min(z**2 / (2 * len(labels)), entropy * (1 - _TOLERANCE))


def _mse(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the variance, the error of predicting the mean.

    Random predictions explain at most the share of the squared correlation by chance.
    """
    variance = labels.var()
    return variance, variance * (1 - _chance_correlation(labels, z))


def _rmse(labels: np.ndarray, z: float) -> tuple[float, float]:
    variance, needed = _mse(labels, z)
    return math.sqrt(variance), math.sqrt(needed)


def _mae(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the mean distance from the median, the error of predicting the median."""
    distance = np.abs(labels - np.median(labels)).mean()
    return distance, distance * math.sqrt(1 - _chance_correlation(labels, z))


def _r2(labels: np.ndarray, z: float) -> tuple[float, float]:
    return 0.0, _chance_correlation(labels, z)


def _poisson_deviance(labels: np.ndarray, z: float) -> tuple[float, float]:
    """Returns the deviance of predicting the mean.

    The gain by chance has a chi-squared distribution, scaled by the dispersion.
    """
    mean = labels.mean()
    logs = np.log(np.where(labels > 0, labels, 1) / mean)
    deviance = 2 * np.mean(labels * logs - labels + mean)
    gain = labels.var() / mean * z**2 / len(labels)
    return deviance, deviance - min(gain, deviance * (1 - _TOLERANCE))


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
"""The formulas by the metric's name in a config."""
CLASSIFICATION_METRICS = frozenset(FORMULAS) - {
    "mse", "rmse", "mae", "r2", "squared_correlation", "poisson_deviance"
}  # fmt: skip


def _share_margin(share: float, examples: int, z: float) -> float:
    """Returns the margin of a share; `share` plus the margin is always less than 1."""
    return min(z * math.sqrt(share * (1 - share) / examples), (1 - share) * (1 - _TOLERANCE))


def _chance_correlation(labels: np.ndarray, z: float) -> float:
    """Returns the squared correlation that numbers independent of the labels reach by chance."""
    return min(z**2 / len(labels), 1 - _TOLERANCE)
