"""Ordinal: one of several classes that have an order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from trainer_module.families.supervised.tasks.classes import ManyClassTask
from trainer_module.families.supervised.tasks.multiclass import METRICS
from trainer_module.features.number_format import as_text
from trainer_module.features.vocabularies.orders import GivenOrder
from trainer_module.settings.tasks import NUMBER_METRICS, Metric

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from trainer_module.features.raw_columns import AnyTensor
    from trainer_module.settings.tasks import LabelStatistics


def _check_classes(order: object) -> object:
    for value in order if isinstance(order, list) else []:
        if isinstance(value, bool):
            raise ValueError(
                "YAML reads yes, no, on and off as true and false; put such words in quotes"
            )
        # A whole number may have come by way of JSON, as a float.
        is_whole = isinstance(value, int | float) and float(value).is_integer()
        if not (isinstance(value, str) or is_whole):
            raise ValueError(
                f"{value} is neither text nor a whole number; put a fraction in quotes"
            )
    return order


def _check_order(order: list[str | int]) -> list[str | int]:
    if len(set(map(str, order))) < len(order):
        raise ValueError("each class is named once")
    return order


class OrdinalTask(ManyClassTask):
    """One of several classes that have an order: to be off by two is worse than by one."""

    kind: Literal["ordinal"]
    order: Annotated[
        list[str | int], BeforeValidator(_check_classes), AfterValidator(_check_order)
    ] = Field(min_length=3)
    """The classes from the lowest to the highest, such as `[low, mid, high]`."""
    otherwise: ClassVar[str] = "multiclass"

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as text."""
        return tuple(map(str, self.order))

    @property
    def needs(self) -> str:
        """One of the order."""
        return f"one of {', '.join(self.names)} (task.order)"

    def takes(self, labels: np.ndarray) -> np.ndarray:
        """Those of the order."""
        values, places = np.unique(labels, return_inverse=True)
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else as_text(v) for v in values]
        return np.isin(texts, self.names)[places]

    def metrics(self) -> Mapping[str, Metric]:
        """Of several classes, and by how many ranks the most probable one is off."""
        rank_error = Metric("RankError", False, NUMBER_METRICS, has_unit=True)
        return METRICS | {"rank_error": rank_error}

    def usual_metrics(self) -> tuple[str, ...]:
        """Accuracy decides."""
        return ("accuracy", "rank_error", "log_loss")

    def transform_label(self, column: AnyTensor, label: str) -> tf.Tensor:
        """The index in the order."""
        from trainer_module.features.raw_columns import dense_strings
        from trainer_module.features.vocabularies.analysis import compute_and_apply_classes

        order = GivenOrder(label, self.names)
        return compute_and_apply_classes(dense_strings(column), order)

    def outputs(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """One number, which is higher the higher the class."""
        return (json.dumps(classes),)

    def output_width(self, classes: tuple[str, ...]) -> int:
        """A probability per class."""
        return len(classes)

    def make_activation(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """From a number to the probabilities of the classes between learnt thresholds."""
        import tensorflow as tf

        from trainer_module.families.supervised.tasks.thresholds import CumulativeLogits

        return CumulativeLogits(len(problem.classes), dtype=tf.float32)

    def make_output_layer(self, problem: LabelStatistics) -> tf_keras.layers.Layer:
        """A dense layer of one number, and the thresholds."""
        import tf_keras

        dense = tf_keras.layers.Dense(problem.output_units, use_bias=False)
        return tf_keras.Sequential([dense, self.make_activation(problem)], name="output")
