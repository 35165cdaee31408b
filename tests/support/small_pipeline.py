"""A compiled pipeline of four steps, the logs of its steps, and its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.compiled import (
    REPORT_MARK,
    SUMMARY_MARK,
    CompiledPipeline,
    StepReport,
)
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.records.summary import (
    ComponentSummary,
    ErrorSummary,
    MetricSummary,
    RunSummary,
    State,
    Status,
)

STEPS = {"begin": "Begin", "resolver": "Resolver", "trainer": "Trainer", "conclude": "Conclude"}
COMPILED = CompiledPipeline(
    "digits",
    "pipelineInfo: {name: digits}\nschemaVersion: 2.1.0\n---\nplatforms: {}\n",
    STEPS,
    {"epochs": 12, "strategy": "mirrored", "span": ""},
)
DONE = dict.fromkeys(STEPS, "SUCCEEDED")


def write_config(folder: Path, endpoint: str, **changes: Any) -> Path:
    """A config for the API at an endpoint; `kubeflow` and `schedule` may be changed."""
    config = {
        "name": "digits",
        "data": {"format": "csv", "path": "data.csv", "label": "y"},
        "task": "binary",
        "metadata": "mysql://scopeline@mysql/digits",
        **changes,
    }
    config["kubeflow"] = {
        "image": "registry.example.com/scopeline:0.1.0",
        "endpoint": endpoint,
        "volume": {"claim": "scopeline"},
        **changes.get("kubeflow", {}),
    }
    file = folder / "digits.yaml"
    file.write_text(yaml.safe_dump({k: v for k, v in config.items() if v is not None}))
    return file


def load(folder: Path, endpoint: str, **changes: Any) -> PipelineConfig:
    return load_for_kubeflow(write_config(folder, endpoint, **changes))


def report(step: str, state: State = State.RAN, detail: str = "", is_shown: bool = True) -> str:
    """A step's log."""
    said = StepReport(step=step, state=state, seconds=4.2, detail=detail, is_shown=is_shown)
    return f"chatter\n{REPORT_MARK}{said.model_dump_json()}\n"


def conclusion(status: Status, **changes: Any) -> str:
    """The last step's log."""
    summary = RunSummary(
        run_id="r", pipeline="digits", started="now", strategy="mirrored", status=status, **changes
    )
    return f"{report('Conclude')}{SUMMARY_MARK}{summary.model_dump_json()}\n"


PUSHED = conclusion(
    Status.PUSHED,
    blessed=True,
    reason="every threshold is met",
    components=[ComponentSummary(name="Trainer", state=State.RAN, seconds=4.2)],
    pushed="/mnt/scopeline/output/digits/serving/digits/1",
    metrics={"accuracy": MetricSummary(value=0.97, in_service=None, needs=">= 0.95", ok=True)},
)
UNUSABLE = conclusion(
    Status.UNUSABLE, error=ErrorSummary(component="Begin", message="data.csv is empty", log="")
)
LOGS = {
    "begin": report("Begin", detail="no spans"),
    "resolver": report("Resolver", is_shown=False),
    "trainer": report("Trainer", detail="12 epochs, best 9"),
    "conclude": PUSHED,
}
