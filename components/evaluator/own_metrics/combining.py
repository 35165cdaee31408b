"""What our combiners share: whose rows they read, and under which key their result is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2


class KeyedCombiner(beam.CombineFn):
    """Base of the combiners whose accumulator is their result, under a private key."""

    def __init__(
        self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None
    ) -> None:
        """Reads the model and the output of the key, by weights if that says so."""
        super().__init__()
        self._key = key
        self._eval_config = eval_config

    def rows(
        self, element: metric_types.StandardMetricInputs, flatten: bool = True
    ) -> Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The labels, predictions and weights of an element; `flatten` parts them by class."""
        found: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]] = (
            metric_util.to_label_prediction_example_weight(
                element,
                eval_config=self._eval_config,
                model_name=self._key.model_name,
                output_name=self._key.output_name,
                example_weighted=self._key.example_weighted,
                flatten=flatten,
            )
        )
        return found

    def extract_output(self, accumulator: Any) -> dict[metric_types.MetricKey, Any]:
        """By its private key."""
        return {self._key: accumulator}
