"""Functions that read TFMA's EvalConfig, and TFMA's results by slice and model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2


def metric_name(metric: config_pb2.MetricConfig) -> str | None:
    """Returns the name in a metric's config, or None."""
    return _settings(metric).get("name")


def metric_classes(config: config_pb2.EvalConfig) -> dict[str, str]:
    """Returns the class name of each metric that has a name."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return {name: metric.class_name for metric in metrics if (name := metric_name(metric))}


def plain_metrics(config: config_pb2.EvalConfig) -> set[str]:
    """Returns the names of the metrics that have no other settings than a name."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return {
        settings["name"] for metric in metrics if set(settings := _settings(metric)) == {"name"}
    }


def _settings(metric: config_pb2.MetricConfig) -> dict[str, Any]:
    """Returns the settings of a metric, which TFMA accepts with and without braces."""
    text = metric.config if metric.config.startswith("{") else f"{{{metric.config}}}"
    settings: dict[str, Any] = json.loads(text)
    return settings


CANDIDATE = "candidate"
"""TFMA's name of the new model."""
BASELINE = "baseline"
"""TFMA's name of the model in service."""


def metrics_by_slice(uri: str) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the values of metrics that are numbers, by slice, by model, and by metric.

    The whole split is the slice with an empty name.
    """
    values: dict[str, dict[str, dict[str, float]]] = {}
    for slice_metrics in tfma.load_metrics(uri):
        name = slice_name(slice_metrics.slice_key.single_slice_keys)
        for item in slice_metrics.metric_keys_and_values:
            is_number = item.value.WhichOneof("type") == "double_value"
            if is_number and not item.key.is_diff:
                model = item.key.model_name or CANDIDATE
                metrics = values.setdefault(name, {}).setdefault(model, {})
                metrics[item.key.name] = item.value.double_value.value
    return values


def slice_name(keys: Iterable[Any]) -> str:
    """Returns the name of the slice of some SingleSliceKeys, or an empty string for the whole
    split.
    """
    return ", ".join(f"{key.column}={slice_value(key)}" for key in keys)


def slice_value(key: Any) -> str:
    """Returns the value in a SingleSliceKey as a string.

    TFMA stores integers as floats: they are written without a decimal point, as in the data.
    """
    value = getattr(key, key.WhichOneof("kind"))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
