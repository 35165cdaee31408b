"""Follows a run on Kubeflow to its end, on the same screen as a run on this machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import kfp_server_api as kfp_api

from pipeline.exit_codes import EXIT_FAILED
from pipeline.kubeflow.api.client import Kubeflow, NoLogError
from pipeline.kubeflow.api.errors import UnavailableError
from pipeline.kubeflow.api.polling import Polling
from pipeline.kubeflow.api.step_logs import read_tail
from pipeline.kubeflow.api.tasks import (
    CANCELED,
    ENDED,
    FAILED,
    SKIPPED,
    SUCCEEDED,
    Step,
    read_steps,
)
from pipeline.kubeflow.compiled import (
    FINALIZE,
    CompiledPipeline,
    StepProgress,
    read_progress,
    read_report,
    read_summary,
    without_marked,
)
from pipeline.kubeflow.steps.progress import record_of
from pipeline.records.summary import RunSummary, State
from pipeline.runs.console import RunConsole
from trainer_module.errors import InternalError

_STATES = {
    SUCCEEDED: State.RAN,
    SKIPPED: State.SKIPPED,
    FAILED: State.FAILED,
    CANCELED: State.FAILED,
}
_LAST_LOOKS = 3
"""Kubeflow tells that a run has ended a moment before it tells so of its last step."""
_TRAINER = "Trainer"
_REST = 10
"""A log can only be read whole: so many times as long as that took, it is not read again."""


class Follower:
    """Draws a run that goes on elsewhere."""

    def __init__(
        self,
        kubeflow: Kubeflow,
        compiled: CompiledPipeline,
        run_id: str,
        console: RunConsole,
        pace: Polling,
    ) -> None:
        """Prepares to follow.

        Args:
          kubeflow: where it runs.
          compiled: what runs.
          run_id: of the run.
          console: where to draw.
          pace: how often to look.
        """
        self._kubeflow = kubeflow
        self._compiled = compiled
        self._run_id = run_id
        self._console = console
        self._pace = pace
        self._shown: set[str] = set()
        self._drawn = ""
        self._progress: StepProgress | None = None
        self._next_look = 0.0
        self._without_log: NoLogError | None = None
        self.summary: RunSummary | None = None
        """What `FINALIZE` says, when it has."""

    def follow(self) -> str:
        """Draws the run until it has ended.

        Returns:
          How it ended, a state of Kubeflow's.

        Raises:
          UnavailableError: Kubeflow has not answered for too long.
          ConfigError: it refuses to answer.
          InternalError: the run takes longer than it is followed, or Kubeflow failed.
        """
        began = time.monotonic()
        while True:
            run = self._pace.patiently(lambda: self._kubeflow.run(self._run_id))
            self._draw(run)
            if run.state in ENDED:
                return self._finish(run)
            if self._pace.timeout is not None and time.monotonic() - began > self._pace.timeout:
                raise InternalError(f"the run has not ended within {self._pace.timeout:.0f} s")
            time.sleep(self._pace.poll)

    def _finish(self, run: kfp_api.V2beta1Run) -> str:
        """Looks until the last step has ended as well."""
        for _ in range(_LAST_LOOKS):
            if FINALIZE in self._shown:
                break
            time.sleep(self._pace.poll)
            run = self._pace.patiently(lambda: self._kubeflow.run(self._run_id))
            self._draw(run)
        self._console.stop()
        return str(run.state)

    def conclude(self, state: str, hints: list[str]) -> int:
        """Shows the outcome.

        Args:
          state: what `follow` returned.
          hints: what to look at next.

        Returns:
          The exit code, as of a run on this machine; that of a failure where nobody knows, as the
          run's own summary cannot be read.
        """
        if self.summary is not None:
            self._console.conclude(self.summary, hints)
            return self.summary.status.exit_code
        why = self._without_log or "its last step did not come to one"
        lines = [f"the run {state.lower()}; its summary cannot be read: {why}"]
        if state == CANCELED:
            lines = ["the run was terminated"]
        elif state == SUCCEEDED:
            lines.append("whether a model was pushed is not known here")
        for line in lines + hints:
            self._console.write(line)
        return EXIT_FAILED

    def _draw(self, run: kfp_api.V2beta1Run) -> None:
        """Draws what has changed."""
        steps = read_steps(run)
        running: dict[str, Step] = {}
        for task, node in self._compiled.steps.items():
            step = steps.get(task)
            if step is None or node in self._shown:
                continue
            if step.has_ended:
                self._shown.add(node)
                self._drawn = ""
                self._finished(node, step)
            elif node != FINALIZE:
                running[node] = step
        if running:
            node = _foremost(running)
            if node != self._drawn:
                self._drawn, self._progress, self._next_look = node, None, 0.0
                self._console.started(node)
            self._draw_progress(running[node])

    def _draw_progress(self, step: Step) -> None:
        """Draws how far a step says it has come, if it has come further."""
        began = time.monotonic()
        if began < self._next_look:
            return
        try:
            progress = read_progress(read_tail(self._kubeflow, self._run_id, step))
        except (NoLogError, UnavailableError):
            # Its container may only be about to start; and it goes on unseen as well.
            progress = None
        self._next_look = time.monotonic() + _REST * (time.monotonic() - began)
        if progress is not None and progress != self._progress:
            self._progress = progress
            self._console.emit(record_of(progress))

    def _finished(self, node: str, step: Step) -> None:
        """Draws a step that ended, by its own report where it came to one."""
        try:
            log = self._pace.patiently(lambda: read_tail(self._kubeflow, self._run_id, step))
        except NoLogError as error:
            log, self._without_log = "", error
        if node == FINALIZE:
            self.summary = read_summary(log)
            return
        report = read_report(log)
        failed = step.state in (FAILED, CANCELED)
        if report is None or (failed and report.state is not State.FAILED):
            state, seconds = _STATES[step.state], step.seconds(datetime.now(UTC))
            detail = _why(step, log) if failed else ""
            self._console.finished(node, state, seconds, detail)
        elif report.is_shown or failed:
            self._console.finished(node, report.state, report.seconds, report.detail)


def _foremost(running: dict[str, Step]) -> str:
    """The step to draw, as there is room for one of those that run at the same time."""

    def rank(node: str) -> tuple[bool, datetime]:
        return node == _TRAINER, running[node].started or datetime.min.replace(tzinfo=UTC)

    return max(reversed(running), key=rank)


def _why(step: Step, log: str) -> str:
    """What is known of a failure that the step itself did not report."""
    if step.state == CANCELED:
        return "it was terminated"
    if not step.pods:
        return "it could not be started"
    said = without_marked(log.encode()).decode().splitlines()
    last = next((line.strip() for line in reversed(said) if line.strip()), "")
    return f"it ended without a report; its last words: {last}" if last else "it was killed"
