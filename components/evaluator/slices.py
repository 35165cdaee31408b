"""Readers of TFMA's EvalConfig and of its results by slice and by model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2


def metric_name(metric: config_pb2.MetricConfig) -> str | None:
    """Returns the name of a metric; None if its config gives it none."""
    return _settings(metric).get("name")


def metric_classes(config: config_pb2.EvalConfig) -> dict[str, str]:
    """Returns the class of each metric that has a name."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return {name: metric.class_name for metric in metrics if (name := metric_name(metric))}


def plain_metrics(config: config_pb2.EvalConfig) -> set[str]:
    """Returns the names of the metrics that have no arguments beside their names."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return {
        settings["name"] for metric in metrics if set(settings := _settings(metric)) == {"name"}
    }


def _settings(metric: config_pb2.MetricConfig) -> dict[str, Any]:
    """Returns a metric's settings, which TFMA accepts with and without braces."""
    text = metric.config if metric.config.startswith("{") else f"{{{metric.config}}}"
    found: dict[str, Any] = json.loads(text)
    return found


CANDIDATE = "candidate"
BASELINE = "baseline"
"""The name of the model in service where there are two models; CANDIDATE is the new one's."""


def metrics_by_slice(uri: str) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the metrics that are numbers: slice -> model -> metric -> value.

    The whole split is the slice with an empty name.

    Args:
      uri: the folder that TFMA wrote to.
    """
    values: dict[str, dict[str, dict[str, float]]] = {}
    for of_slice in tfma.load_metrics(uri):
        name = slice_name(of_slice.slice_key.single_slice_keys)
        for item in of_slice.metric_keys_and_values:
            is_number = item.value.WhichOneof("type") == "double_value"
            if is_number and not item.key.is_diff:
                model = item.key.model_name or CANDIDATE
                metrics = values.setdefault(name, {}).setdefault(model, {})
                metrics[item.key.name] = item.value.double_value.value
    return values


def slice_name(keys: Iterable[Any]) -> str:
    """Returns the name of a slice from TFMA's SingleSliceKeys; empty for the whole split."""
    return ", ".join(f"{key.column}={slice_value(key)}" for key in keys)


def slice_value(key: Any) -> str:
    """Returns a value that names a slice as the data has it: integers of a CSV are floats in
    TFMA.
    """
    value = getattr(key, key.WhichOneof("kind"))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
