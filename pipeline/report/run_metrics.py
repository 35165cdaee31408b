"""The metrics of the last run, for Prometheus's textfile collector."""

from __future__ import annotations

import math
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from pipeline.records.summary import RunSummary, Status


def run_metrics(summary: RunSummary) -> str:
    """Returns the metrics of a run that has ended, in Prometheus's text format."""
    gauges = _Gauges(summary.pipeline)
    began = datetime.fromisoformat(summary.started).timestamp()
    gauges.set("start_timestamp_seconds", "Time when the last run began.", began)
    ended = began + summary.seconds
    gauges.set("end_timestamp_seconds", "Time when the last run ended.", ended)
    gauges.set("duration_seconds", "Duration of the last run.", summary.seconds)
    code = summary.status.exit_code
    gauges.set("exit_code", "Exit code of the last run: 0 means no problem.", code)
    for status in Status:
        if status is not Status.RUNNING:
            is_status = summary.status is status
            gauges.set("status", "1 for the status of the last run.", is_status, status=status)
    if summary.blessed is not None:
        gauges.set("blessed", "1 if the model of the last run is blessed.", summary.blessed)
    for split, rows in summary.examples.items():
        gauges.set("examples", "Examples in the last run's newest data.", rows, split=split)
    gauges.set("anomalies", "Anomalies in the last run's data.", len(summary.anomalies))
    gauges.set("drifts", "Drifts in the last run's data.", len(summary.drift))
    _add_metrics(gauges, summary)
    _add_components(gauges, summary)
    return gauges.text()


def _add_metrics(gauges: _Gauges, summary: RunSummary) -> None:
    for name, metric in summary.metrics.items():
        text = "Metric of the last run's model on the eval split."
        gauges.set("metric", text, metric.value, metric=name)
        if metric.in_service is not None:
            text = "Metric of the model in service during the last run."
            gauges.set("metric_in_service", text, metric.in_service, metric=name)
        if metric.needs:
            text = "1 if the metric meets its thresholds."
            gauges.set("metric_ok", text, metric.ok, metric=name)


def _add_components(gauges: _Gauges, summary: RunSummary) -> None:
    for component in summary.components:
        labels = {"component": component.name, "state": component.state.value}
        text = "Duration of the last run's components."
        gauges.set("component_duration_seconds", text, component.seconds, **labels)
    costs = {} if summary.details is None else summary.details.costs
    for name, cost in costs.items():
        text = "CPU time of the last run's components."
        gauges.set("component_cpu_seconds", text, cost.cpu_seconds, component=name)
        text = "Largest resident memory during the last run's components."
        gauges.set("component_memory_peak_bytes", text, cost.peak_bytes, component=name)
        text = "Bytes that the last run's components have written."
        gauges.set("component_written_bytes", text, cost.written_bytes, component=name)


class _Gauges:
    """Gauges `scopeline_run_...` with the label `pipeline`."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}

    def set(self, name: str, text: str, value: float, **labels: str) -> None:
        """Sets the value of a gauge for labels; a value that is not finite is left out."""
        if not math.isfinite(value):
            return
        if name not in self._gauges:
            names = ("pipeline", *labels)
            gauge = Gauge(f"scopeline_run_{name}", text, names, registry=self._registry)
            self._gauges[name] = gauge
        self._gauges[name].labels(self._pipeline, *labels.values()).set(value)

    def text(self) -> str:
        """Returns all gauges in Prometheus's text format."""
        return generate_latest(self._registry).decode()
