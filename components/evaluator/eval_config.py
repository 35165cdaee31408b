"""What TFMA's EvalConfig says of metrics."""

from __future__ import annotations

import json
from typing import Any

from tensorflow_model_analysis.proto import config_pb2


def metric_name(metric: config_pb2.MetricConfig) -> str | None:
    """What a metric is called; None of one that is not asked for by name."""
    return _settings(metric).get("name")


def metric_classes(config: config_pb2.EvalConfig) -> dict[str, str]:
    """The class of each metric that has a name."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return {name: metric.class_name for metric in metrics if (name := metric_name(metric))}


def plain_metrics(config: config_pb2.EvalConfig) -> set[str]:
    """The names of the metrics that have no arguments beside their names."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return {
        settings["name"] for metric in metrics if set(settings := _settings(metric)) == {"name"}
    }


def _settings(metric: config_pb2.MetricConfig) -> dict[str, Any]:
    """TFMA takes them with and without braces."""
    text = metric.config if metric.config.startswith("{") else f"{{{metric.config}}}"
    found: dict[str, Any] = json.loads(text)
    return found
