"""What an explanation measures: the loss of each row, and the output that is explained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SMALLEST = 1e-7
"""The smallest probability, and the smallest expected count, in a loss."""


@dataclass(frozen=True)
class Target:
    """The task of a model, as the description in its folder names it."""

    task: str
    label: str
    classes: tuple[str, ...]
    """The names of the classes by index, or an empty tuple for a number."""

    @property
    def loss(self) -> str:
        """The name of the loss."""
        if self.classes:
            return "log_loss"
        return "poisson_deviance" if self.task == "count" else "mse"

    @property
    def output(self) -> str:
        """The explained output in words."""
        if not self.classes:
            return self.label
        if len(self.classes) == 2:
            return f"probability of {self.classes[1]}"
        return "probability of the predicted class"

    def read_outputs(self, predictions: np.ndarray) -> np.ndarray | None:
        """Returns the probabilities of all classes, or the number, [rows, outputs] float32.

        The result is None if the predictions have another width.

        Args:
          predictions: the output `predictions` of the model, [rows, n]. Two classes have one
            probability. More classes have another one, the class of labels that are unknown.
        """
        count = len(self.classes)
        if count == 2 and predictions.shape[1] == 1:
            return np.concatenate([1 - predictions, predictions], 1)
        if predictions.shape[1] not in ({count, count + 1} if count else {1}):
            return None
        return predictions[:, : max(count, 1)]

    def losses(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Returns the loss of each row, [rows] float64.

        Args:
          outputs: the probabilities or the number, [rows, outputs].
          labels: the indices of the classes or the numbers, [rows].
        """
        if self.classes:
            right = outputs[np.arange(len(labels)), labels.astype(np.int64)].astype(np.float64)
            return -np.log(np.maximum(right, _SMALLEST))
        predicted, actual = outputs[:, 0].astype(np.float64), labels.astype(np.float64)
        if self.task != "count":
            return np.asarray((predicted - actual) ** 2)
        predicted = np.maximum(predicted, _SMALLEST)
        ratio = np.where(actual > 0, actual, 1) / predicted
        return np.asarray(2 * (actual * np.log(ratio) - (actual - predicted)))

    def constant_loss(self, labels: np.ndarray, weights: np.ndarray) -> float:
        """Returns the mean loss of the best constant prediction for the labels."""
        if self.classes:
            shares = np.bincount(labels.astype(np.int64), weights, len(self.classes))
            constant = (shares / weights.sum())[np.newaxis]
        else:
            constant = np.array([[np.average(labels, weights=weights)]])
        rows = np.broadcast_to(constant, (len(labels), constant.shape[1]))
        return float(np.average(self.losses(rows, labels), weights=weights))

    def explained_outputs(self, outputs: np.ndarray) -> np.ndarray:
        """Returns the index of the explained output of each row, [rows]."""
        if len(self.classes) == 2:
            return np.ones(len(outputs), np.int64)
        return np.argmax(outputs, 1)

    def show(self, outputs: np.ndarray) -> str:
        """Returns the prediction of a row, [outputs], as text."""
        if not self.classes:
            return f"{outputs[0]:.6g}"
        best = int(np.argmax(outputs))
        return f"{self.classes[best]} ({outputs[best]:.2f})"

    def show_label(self, label: float) -> str:
        """Returns the label of a row as text."""
        return self.classes[int(label)] if self.classes else f"{label:.6g}"
