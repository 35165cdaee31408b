"""The evaluated model as a function from raw columns to predictions, which measures its speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from components.evaluator.explanation.target import Target
from components.tfrecords import rows_for_models
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface
from trainer_module.export.saving import (
    EVAL_LABEL,
    EVAL_LABEL_SIGNATURE,
    EXAMPLES,
    FROM_TRANSFORMED_SIGNATURE,
    SERVING_RAW_TRANSFORM_SIGNATURE,
)

Arrays = Mapping[str, np.ndarray]
"""Columns by their names in requests, [rows, ...] each."""
_WIDE, _MAX_CELLS = 256, 2_000_000
"""The number of columns from which a table is wide, and the maximum number of its values in a call.
A call of a wide table takes as much time as hundreds of rows."""
_MAX_ROWS = 1024
"""The maximum number of rows in a call of a model. Larger batches are hardly faster."""


class ExplainedModel:
    """A loaded model, its target, and the speed of its predictions."""

    def __init__(
        self, exported: Any, interface: ModelInterface, target: Target, some: Sequence[bytes]
    ) -> None:
        """Chooses the number of rows in a call.

        Args:
          some: some serialized examples, which show the size of a row.
        """
        self.interface, self.target = interface, target
        self._signatures = exported.signatures
        columns = len(interface.columns)
        rows = rows_for_models(some) if columns < _WIDE else _MAX_CELLS // columns
        self.batch_rows = int(np.clip(rows, 1, _MAX_ROWS))
        self._rows, self._seconds = 0, 0.0

    @property
    def rows_per_second(self) -> float:
        """The number of predictions per second, without the first call, or 0 before any call."""
        return self._rows / self._seconds if self._seconds else 0.0

    def capacity(self, seconds: float) -> int:
        """Returns the number of predictions in a time."""
        return int(self.rows_per_second * seconds)

    def seconds(self, predictions: int) -> float:
        """Returns the time of predictions."""
        return predictions / max(self.rows_per_second, 1e-9)

    def warm_up(self, columns: Arrays) -> None:
        """Predicts rows without measuring the time, as the first call optimises the graph."""
        self._predict(columns)

    def labels(self, records: np.ndarray) -> np.ndarray:
        """Returns the transformed labels of serialized examples, [rows]."""
        outputs = self._signatures[EVAL_LABEL_SIGNATURE](**{EXAMPLES: tf.constant(records)})
        return np.asarray(outputs[EVAL_LABEL].numpy()).reshape(len(records))

    def predict(self, columns: Arrays) -> np.ndarray:
        """Returns the outputs of rows, [rows, outputs] float32.

        Raises:
          DataError: the model has other outputs than its task.
        """
        count = len(next(iter(columns.values())))
        return self.predict_mixed(columns, {}, np.arange(count))

    def predict_mixed(
        self, columns: Arrays, moved: Mapping[str, np.ndarray], rows: np.ndarray
    ) -> np.ndarray:
        """Returns the outputs of rows whose columns come from different rows.

        Args:
          moved: the indices of the values of some columns, [predictions] each.
          rows: the indices of the values of all other columns, [predictions].

        Returns:
          [predictions, outputs] float32.

        Raises:
          DataError: the model has other outputs than its task.
        """
        started, parts = time.perf_counter(), []
        for start in range(0, len(rows), self.batch_rows):
            part = slice(start, start + self.batch_rows)
            batch = {n: values[moved.get(n, rows)[part]] for n, values in columns.items()}
            parts.append(self._predict(batch))
        self._rows += len(rows)
        self._seconds += time.perf_counter() - started
        return np.concatenate(parts)

    def transform(self, columns: Arrays) -> dict[str, tf.Tensor]:
        """Returns the transformed features of rows, by their names in requests."""
        transform = self._signatures[SERVING_RAW_TRANSFORM_SIGNATURE]
        features = transform(**{name: tf.constant(values) for name, values in columns.items()})
        return {feature.request: features[feature.name] for feature in self.interface.features}

    def apply(self, features: Mapping[str, Any]) -> np.ndarray:
        """Returns the outputs for transformed features, [rows, outputs] float32.

        Raises:
          DataError: the model has other outputs than its task.
        """
        answers = self._signatures[FROM_TRANSFORMED_SIGNATURE](**features)
        predictions = answers["predictions"].numpy()
        predictions = predictions.reshape(len(predictions), -1).astype(np.float32)
        outputs = self.target.read_outputs(predictions)
        if outputs is None:
            raise DataError(
                f"the model has {predictions.shape[1]} outputs, which is no prediction of `task: "
                f"{self.target.task}` with {len(self.target.classes)} classes"
            )
        return outputs

    def _predict(self, columns: Arrays) -> np.ndarray:
        return self.apply(self.transform(columns))
