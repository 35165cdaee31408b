"""The summary of a cluster's run, from what its steps have reported."""

from __future__ import annotations

from pipeline.kubeflow.compiled import ComponentResult, StepReport
from pipeline.kubeflow.steps.reported_results import ReportedResults
from pipeline.records.summary import RunSummary, State


def report(**summary: object) -> StepReport:
    """Of a step that has ended."""
    return StepReport(
        step="a step",
        state=State.RAN,
        seconds=1,
        detail="done",
        found=ComponentResult(summary=summary),
    )


def test_notes_of_several_steps_stand_side_by_side() -> None:
    reports = {"ExampleGen": report(notes=["a GIF"]), "Evaluator": report(notes=["a doubt"])}
    results = ReportedResults(reports)
    summary = RunSummary(
        run_id="1", pipeline="p", started="now", strategy="auto", notes=["a gap in the window"]
    )
    for _ in range(2):
        for name in reports:
            assert results.read(name, State.RAN, None, summary) == (State.RAN, "done")
        assert summary.notes == ["a gap in the window", "a GIF", "a doubt"]
        summary.notes = ["a gap in the window"]
