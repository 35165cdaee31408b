"""What the components of a run have found, from the reports of their steps."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.component_ids import ComponentId
from pipeline.kubeflow.compiled import ComponentResult, StepReport
from pipeline.records.summary import RunSummary, State
from pipeline.runs.results.run_results import PushedVersion


class ReportedResults:
    """The results of a run whose steps have ended; no artifact is read again."""

    def __init__(self, reports: Mapping[str, StepReport]) -> None:
        """Reads nothing.

        Args:
          reports: by component, of those that left one.
        """
        self._reports = reports

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds a component's results to the summary, as `RunResults` says."""
        del execution
        report = self._reports[component]
        found = dict(report.found.summary)
        # Notes come from several steps, everything else from one.
        found["notes"] = [*summary.notes, *found.get("notes", [])]
        whole = RunSummary.model_validate(summary.model_dump() | found)
        for name in found:
            setattr(summary, name, getattr(whole, name))
        return state, report.detail

    def examples_uri(self) -> str:
        """Where the examples are."""
        return self._found(ComponentId.EXAMPLE_GEN).examples or ""

    def model_uri(self) -> str | None:
        """Where the model is; None if Trainer did not come to one."""
        return self._found(ComponentId.TRAINER).model

    def pushed_version(self) -> PushedVersion | None:
        """The version that Pusher made; None if it pushed nothing."""
        return self._found(ComponentId.PUSHER).pushed

    def _found(self, component: str) -> ComponentResult:
        return self._reports[component].found if component in self._reports else ComponentResult()
