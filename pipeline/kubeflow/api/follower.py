"""Follows a run on Kubeflow to its end, on the console of local runs."""

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
    without_records,
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
"""The number of polls after the end of a run. Kubeflow reports the last step a moment later."""
_LOG_PAUSE_FACTOR = 10
"""The pause between two readings of a log, as a multiple of the time of one reading, because a log
is always read from its beginning.
"""


class Follower:
    """A follower that shows a run on Kubeflow until it ends."""

    def __init__(
        self,
        kubeflow: Kubeflow,
        compiled: CompiledPipeline,
        run_id: str,
        console: RunConsole,
        polling: Polling,
    ) -> None:
        """Stores the arguments; makes no call.

        Args:
          polling: the polling interval and the time limits.
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
        """The run's summary, from the log of `FINALIZE`, or None until that step has ended."""

    def follow(self) -> str:
        """Shows the run until it has ended.

        Returns:
          The final state of the run, as Kubeflow names it.

        Raises:
          UnavailableError: Kubeflow did not respond for too long.
          ConfigError: Kubeflow refuses a call.
          InternalError: the run exceeds the time limit, or Kubeflow failed.
        """
        began, timeout = time.monotonic(), self._polling.timeout
        polls_left = _LAST_POLLS
        while True:
            run = self._polling.retry(lambda: self._kubeflow.run(self._run_id))
            self._show(run)
            if run.state in ENDED:
                if FINALIZE in self._ended or not polls_left:
                    self._console.stop()
                    return str(run.state)
                polls_left -= 1
            elif timeout is not None and time.monotonic() - began > timeout:
                raise InternalError(f"the run has not ended within {timeout:.0f} s")
            time.sleep(self._polling.interval)

    def show_outcome(self, state: str, hints: list[str]) -> int:
        """Shows the outcome of the run.

        Args:
          state: the state that `follow` returned.
          hints: commands for further details.

        Returns:
          The exit code, as for a local run; the code of a failure if the summary cannot be read.
        """
        if self.summary is not None:
            self._console.conclude(self.summary, hints)
            return self.summary.status.exit_code
        reason = self._log_error or "the last step has not written a summary"
        lines = [f"the run {state.lower()}; its summary cannot be read: {reason}"]
        if state == CANCELED:
            lines = ["the run was terminated"]
        elif state == SUCCEEDED:
            lines.append("the run may have pushed a model")
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
        """Shows the progress of a step from its log, if it has changed."""
        began = time.monotonic()
        if began < self._next_log_read:
            return
        try:
            progress = read_progress(self._read_log(step))
        except (NoLogError, UnavailableError):
            # The container may not have started yet. The run does not depend on the log.
            progress = None
        self._next_log_read = time.monotonic() + _LOG_PAUSE_FACTOR * (time.monotonic() - began)
        if progress is not None and progress != self._progress:
            self._progress = progress
            # The console handles this record like a record of a local component.
            fields = {"msg": progress.message, **progress.model_dump()}
            self._console.emit(logging.makeLogRecord(fields))

    def _read_log(self, step: Step) -> str:
        return read_log(self._kubeflow, self._run_id, step).decode(errors="replace")

    def _show_end(self, node: str, step: Step) -> None:
        """Shows the end of a step, from the report in its log or, without a report, its state."""
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
    """Returns the step that the console shows if several steps run at a time.

    The Trainer takes precedence, as it takes longest; after it, the step that began last.
    """

    def rank(node: str) -> tuple[bool, datetime]:
        return node == ComponentId.TRAINER, running[node].started or datetime.min.replace(
            tzinfo=UTC
        )

    return max(reversed(running), key=rank)


def _explain_failure(step: Step, log: str) -> str:
    """Returns the reason for the failure of a step that wrote no report."""
    if step.state == CANCELED:
        return "the step was terminated"
    if not step.pods:
        return "the step could not be started"
    lines = without_records(log.encode()).decode().splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"the step wrote no report; its last line: {last}" if last else "the step was killed"
