"""The outputs of steps: what kfp's own code reads from the files that a step writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from kfp import dsl
from kfp.local.executor_input_utils import construct_executor_input
from kfp.local.executor_output_utils import get_outputs_for_task
from kfp.pipeline_spec.pipeline_spec_pb2 import ComponentSpec

from components.evaluator.explanation.record import Confusion, Curve, Explanation
from pipeline.kubeflow.compiled import ComponentResult, StepReport
from pipeline.kubeflow.declared_outputs import outputs_of
from pipeline.kubeflow.steps.outputs import OutputWriter, describe_node
from pipeline.records.summary import State

HOSTILE = ['<script>alert("1")</script>', "\u202eright to left", "a'b\n$(HOME) {{$}}"]
EXPLANATION = Explanation(
    rows=3,
    of=9,
    task="multiclass",
    output="the class",
    loss="log_loss",
    loss_value=0.1,
    confusion=Confusion(classes=HOSTILE, counts=[[2.0, 1, 0], [0, 3, 0], [0, 0, 1]]),
)
METRICS = {
    "accuracy": {"value": 0.75, "in_service": None, "needs": "", "ok": True},
    "auc": {"value": None, "in_service": None, "needs": "", "ok": True},
}


def launch(folder: Path, step: str, describe: Any) -> dict[str, Any]:
    """Gives a step its executor's input, and reads what it has written, by kfp's own code."""
    declared = {
        name: {"artifactType": {"schemaTitle": f"system.{kind}", "schemaVersion": "0.0.1"}}
        for name, kind in outputs_of(step, has_classes=True).items()
    }
    component = json_format.ParseDict(
        {"outputDefinitions": {"artifacts": declared}}, ComponentSpec()
    )
    given = construct_executor_input(component, {}, str(folder), block_input_artifact=True)
    paths = [f"{name}={folder / name}" for name in declared]
    OutputWriter.of(json_format.MessageToJson(given, indent=None), paths).write(describe)
    return dict(get_outputs_for_task(given, component))


def report(step: str, **found: Any) -> StepReport:
    return StepReport(
        step=step, state=State.RAN, seconds=1, detail="not blessed", found=ComponentResult(**found)
    )


def test_the_evaluator_shows_its_metrics_and_confusions(tmp_path: Path) -> None:
    output = report(
        "Evaluator", summary={"metrics": METRICS, "blessed": False}, explanation=EXPLANATION
    )
    shown = launch(tmp_path, "Evaluator", lambda: describe_node(output))
    assert shown["metrics"].metadata == {"accuracy": 0.75, "blessed": 0}
    assert type(shown["classification"]) is dsl.ClassificationMetrics
    expected = dsl.ClassificationMetrics()
    assert EXPLANATION.confusion is not None
    expected.log_confusion_matrix(HOSTILE, EXPLANATION.confusion.counts)
    assert shown["classification"].metadata == expected.metadata


def test_two_classes_have_a_curve(tmp_path: Path) -> None:
    curve = Curve(label="yes", x=[0, 0.25, 1], y=[0, 0.5, 1], thresholds=[1, 0.5, 0.1])
    for curves, expected in (([curve], ["confidenceMetrics"]), ([curve, curve], [])):
        explanation = EXPLANATION.model_copy(update={"roc": curves, "confusion": None})
        output = report("Evaluator", explanation=explanation)
        shown = launch(tmp_path, "Evaluator", lambda output=output: describe_node(output))
        assert [*shown["classification"].metadata] == expected
        if expected:
            drawn = dsl.ClassificationMetrics()
            drawn.log_roc_curve(curve.x, curve.y, curve.thresholds)
            assert shown["classification"].metadata == drawn.metadata


def test_outputs_that_cannot_be_written_fail_no_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shown = report("Pusher")
    (tmp_path / "file").write_text("")
    launch(tmp_path / "file", "Pusher", lambda: describe_node(shown))
    launch(tmp_path, "Pusher", lambda: 1 / 0)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "could not be written" in caplog.text
    # A pipeline that an older version has compiled declares none.
    OutputWriter.of(None, []).write(lambda: 1 / 0)
