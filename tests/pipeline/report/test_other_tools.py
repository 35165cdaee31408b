"""What a run tells Prometheus, and that no file of another tool fails a run."""

from __future__ import annotations

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pipeline.layout import Layout
from pipeline.records.details import RunDetails, StepCost
from pipeline.records.summary import ComponentSummary, MetricSummary, RunSummary, State, Status
from pipeline.runs.reporting import write_for_other_tools

HOSTILE = 'slice "a\\b"\n{x}'


def summary() -> RunSummary:
    def metric(value: float, needs: str = "") -> MetricSummary:
        return MetricSummary(value=value, in_service=0.5, needs=needs, ok=False)

    return RunSummary(
        run_id="7",
        pipeline="taxi",
        status=Status.NOT_BLESSED,
        started="2026-11-27T03:00:00+01:00",
        seconds=12.5,
        strategy="mirrored",
        components=[ComponentSummary(name="Trainer", state=State.RAN, seconds=8)],
        examples={"train": 800, "eval": 200},
        drift=["fare has drifted"],
        metrics={"auc": metric(0.25, "at least 0.8"), HOSTILE: metric(math.nan)},
        blessed=False,
        details=RunDetails(
            costs={"Trainer": StepCost(cpu_seconds=15, peak_bytes=2**30, written_bytes=512)}
        ),
    )


def test_prometheus_reads_the_last_run(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "taxi")
    layout.run("7").root.mkdir(parents=True)
    assert write_for_other_tools(summary(), layout) == []
    families = [*text_string_to_metric_families((tmp_path / "taxi/run.prom").read_text())]
    assert all(family.type == "gauge" and family.documentation for family in families)
    samples = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = dict(sample.labels)
        assert labels.pop("pipeline") == "taxi"
        samples[sample.name.removeprefix("scopeline_run_"), *labels.values()] = sample.value
    assert samples["end_timestamp_seconds",] - samples["start_timestamp_seconds",] == 12.5
    assert samples["start_timestamp_seconds",] == 1795744800
    assert (samples["exit_code",], samples["blessed",], samples["drifts",]) == (3, 0, 1)
    assert (samples["status", "not_blessed"], samples["status", "pushed"]) == (1, 0)
    assert samples["examples", "eval"] == 200
    assert (samples["metric", "auc"], samples["metric_ok", "auc"]) == (0.25, 0)
    assert ("metric", HOSTILE) not in samples, "it is not a number"
    assert samples["metric_in_service", HOSTILE] == 0.5
    assert samples["component_duration_seconds", "Trainer", "ran"] == 8
    assert samples["component_memory_peak_bytes", "Trainer"] == 2**30
