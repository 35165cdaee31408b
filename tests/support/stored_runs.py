"""Runs in an output folder, written as runs write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.layout import Layout
from pipeline.records.details import (
    ColumnDetails,
    Lineage,
    RunDetails,
    SplitStatistics,
    StepCost,
)
from pipeline.records.summary import ComponentSummary, MetricSummary, RunSummary, State, Status

HOSTILE = '<script>alert("1")</script>\u202e'


def metric(value: float, low: float, high: float) -> MetricSummary:
    return MetricSummary(value=value, in_service=None, needs="", ok=True, interval=(low, high))


def details_of(config: dict[str, object], price_mean: float = 10.0) -> RunDetails:
    statistics = SplitStatistics(rows=800, missing=0.0, mean=price_mean, std=2.0)
    return RunDetails(
        config=config,
        columns=[ColumnDetails(name="price", type="numeric", splits={"train": statistics})],
        costs={"Trainer": StepCost(cpu_seconds=price_mean, peak_bytes=2_000_000, written_bytes=1)},
        lineage=Lineage(code="c0de", versions={"tensorflow": "2.21.0"}),
    )


def summary_of(run_id: str, pipeline: str = "cars", **fields: Any) -> RunSummary:
    values = {
        "status": Status.PUSHED,
        "started": f"{run_id[:10]}T03:00:00+00:00",
        "seconds": 12.5,
        "strategy": "default",
        "blessed": True,
        "examples": {"train": 800, "eval": 200},
        "training": {"model": "mlp", "epochs": 2, "history": {"loss": [0.5, 0.25]}},
        "components": [
            ComponentSummary(name="ExampleGen", state=State.CACHED, seconds=0.5),
            ComponentSummary(name="Trainer", state=State.RAN, seconds=4.0),
            ComponentSummary(name="Evaluator", state=State.RAN, seconds=1.0),
        ],
        "metrics": {"auc": metric(0.8, 0.75, 0.85)},
    }
    return RunSummary(run_id=run_id, pipeline=pipeline, **values | fields)


def store(output: Path, summary: RunSummary) -> Path:
    """Writes the summary of a run, and returns the folder of the run."""
    files = Layout(output, summary.pipeline).run(summary.run_id)
    files.root.mkdir(parents=True)
    summary.write(files.summary)
    return files.root
