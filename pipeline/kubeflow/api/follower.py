"""Follows a run on Kubeflow to its end, on the same console as a run on this machine."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pipeline.component_ids import ComponentId
from pipeline.exit_codes import EXIT_FAILED
from pipeline.kubeflow.api.client import Kubeflow, NoLogError, Polling
from pipeline.kubeflow.api.errors import UnavailableError
from pipeline.kubeflow.api.steps import (
    CANCELED,
    ENDED,
    FAILED,
    SKIPPED,
    SUCCEEDED,
    Step,
    read_log,
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
from pipeline.records.summary import RunSummary, State
from pipeline.runs.console import RunConsole
from trainer_module.errors import InternalError

if TYPE_CHECKING:
    import kfp_server_api as kfp_api

_STATES = {
    SUCCEEDED: State.RAN,
    SKIPPED: State.SKIPPED,
    FAILED: State.FAILED,
    CANCELED: State.FAILED,
}
_LAST_POLLS = 3
"""Kubeflow reports the end of a run a moment before that of its last step."""
_LOG_PAUSE_FACTOR = 10
"""A log can only be read whole, so after reading it for a second it is left alone for ten."""


class Follower:
    """Shows a run on Kubeflow until it ends."""

    def __init__(
        self,
        kubeflow: Kubeflow,
        compiled: CompiledPipeline,
        run_id: str,
        console: RunConsole,
        polling: Polling,
    ) -> None:
        """Prepares to follow.

        Args:
          kubeflow: where it runs.
          compiled: what runs.
          run_id: of the run.
          console: shows the run.
          polling: how often Kubeflow is asked.
        """
        self._kubeflow = kubeflow
        self._compiled = compiled
        self._run_id = run_id
        self._console = console
        self._polling = polling
        self._ended: set[str] = set()
        self._current = ""
        self._progress: StepProgress | None = None
        self._next_log_read = 0.0
        self._log_error: NoLogError | None = None
        self.summary: RunSummary | None = None
        """The run's summary, from the log of `FINALIZE`; None until that has ended."""

    def follow(self) -> str:
        """Shows the run until it has ended.

        Returns:
          How it ended, a state of Kubeflow's.

        Raises:
          UnavailableError: Kubeflow has not answered for too long.
          ConfigError: it refuses to answer.
          InternalError: the run takes longer than it is followed, or Kubeflow failed.
        """
        began, timeout = time.monotonic(), self._polling.timeout
        looks_left = _LAST_POLLS
        while True:
            run = self._polling.retry(lambda: self._kubeflow.run(self._run_id))
            self._show(run)
            if run.state in ENDED:
                if FINALIZE in self._ended or not looks_left:
                    self._console.stop()
                    return str(run.state)
                looks_left -= 1
            elif timeout is not None and time.monotonic() - began > timeout:
                raise InternalError(f"the run has not ended within {timeout:.0f} s")
            time.sleep(self._polling.interval)

    def show_outcome(self, state: str, hints: list[str]) -> int:
        """Shows the outcome.

        Args:
          state: what `follow` returned.
          hints: what to look at next.

        Returns:
          The exit code, as of a run on this machine; that of a failure if the run's summary cannot
          be read.
        """
        if self.summary is not None:
            self._console.conclude(self.summary, hints)
            return self.summary.status.exit_code
        reason = self._log_error or "its last step did not come to one"
        lines = [f"the run {state.lower()}; its summary cannot be read: {reason}"]
        if state == CANCELED:
            lines = ["the run was terminated"]
        elif state == SUCCEEDED:
            lines.append("whether a model was pushed is not known here")
        for line in lines + hints:
            self._console.write(line)
        return EXIT_FAILED

    def _show(self, run: kfp_api.V2beta1Run) -> None:
        """Shows what has changed since the last call."""
        steps = read_steps(run)
        running: dict[str, Step] = {}
        for task, node in self._compiled.steps.items():
            step = steps.get(task)
            if step is None or node in self._ended:
                continue
            if step.has_ended:
                self._ended.add(node)
                self._current = ""
                self._show_end(node, step)
            elif node != FINALIZE:
                running[node] = step
        if running:
            node = _choose_step(running)
            if node != self._current:
                self._current, self._progress, self._next_log_read = node, None, 0.0
                self._console.started(node)
            self._show_progress(running[node])

    def _show_progress(self, step: Step) -> None:
        """Shows how far a step has come by its log, if that has changed."""
        began = time.monotonic()
        if began < self._next_log_read:
            return
        try:
            progress = read_progress(self._read_log(step))
        except (NoLogError, UnavailableError):
            # Its container may not have started yet, and a run does not need to be seen.
            progress = None
        self._next_log_read = time.monotonic() + _LOG_PAUSE_FACTOR * (time.monotonic() - began)
        if progress is not None and progress != self._progress:
            self._progress = progress
            # As the component made it.
            told = {"msg": progress.message, **progress.model_dump()}
            self._console.emit(logging.makeLogRecord(told))

    def _read_log(self, step: Step) -> str:
        return read_log(self._kubeflow, self._run_id, step).decode(errors="replace")

    def _show_end(self, node: str, step: Step) -> None:
        """Shows that a step has ended, by the report in its log where there is one."""
        try:
            log = self._polling.retry(lambda: self._read_log(step))
        except NoLogError as error:
            log, self._log_error = "", error
        if node == FINALIZE:
            self.summary = read_summary(log)
            return
        report = read_report(log)
        failed = step.state in (FAILED, CANCELED)
        if report is None or (failed and report.state is not State.FAILED):
            state, seconds = _STATES[step.state], step.seconds(datetime.now(UTC))
            detail = _explain_failure(step, log) if failed else ""
            self._console.finished(node, state, seconds, detail)
        elif report.is_shown or failed:
            self._console.finished(node, report.state, report.seconds, report.detail)


def _choose_step(running: dict[str, Step]) -> str:
    """Returns the step to show of those that run at the same time: the console has room for one.

    That is the Trainer, which takes longest, or else the one that began last.
    """

    def rank(node: str) -> tuple[bool, datetime]:
        return node == ComponentId.TRAINER, running[node].started or datetime.min.replace(
            tzinfo=UTC
        )

    return max(reversed(running), key=rank)


def _explain_failure(step: Step, log: str) -> str:
    """Why a step failed that wrote no report into its log."""
    if step.state == CANCELED:
        return "it was terminated"
    if not step.pods:
        return "it could not be started"
    lines = without_marked(log.encode()).decode().splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"it ended without a report; its last words: {last}" if last else "it was killed"
