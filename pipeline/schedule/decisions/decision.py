"""Whether a run of a pipeline is due, and why; decides only, and neither runs nor records."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PUSHED
from pipeline.layout import Layout
from pipeline.lock import is_held
from pipeline.records.event_log import EventLog
from pipeline.schedule.decisions.history import History, read_history
from pipeline.schedule.decisions.inputs import DecisionInputs, Due, NotDue
from pipeline.schedule.decisions.reruns import continue_interrupted, decide_after_failure
from pipeline.schedule.decisions.triggers import decide_by_triggers
from pipeline.versions.hold import read_hold

MAX_CONTINUATIONS = 10
"""A run that is interrupted so often in a row, such as by a machine with too little memory, is not
continued again."""


def decide(
    config: PipelineConfig, layout: Layout, event_log: EventLog, now: datetime
) -> Due | NotDue:
    """Decides whether a run is due.

    Args:
      config: a checked config with a schedule.
      layout: of the pipeline.
      event_log: what has been decided and run before.
      now: what the clock shows, with its time zone.

    Raises:
      ConfigError: the event log cannot be used.
    """
    if is_run_under_way(layout):
        return NotDue("a run is under way", says_nothing=True)
    history = read_history(event_log)
    hold = read_hold(layout, now)
    if hold is not None and hold.stops_runs:
        return NotDue(str(hold), {}, _code_under_hold(history), says_nothing=True)
    continuation = continue_interrupted(history)
    if continuation and history.continuations < MAX_CONTINUATIONS:
        return continuation
    inputs = DecisionInputs.read(config, layout, history, now)
    if continuation and not (inputs.firings or inputs.has_changed):
        reason = (
            f"the run was interrupted {MAX_CONTINUATIONS} times in a row; the next waits for the "
            "clock, or for new data"
        )
        return NotDue(reason, {}, EXIT_FAILED, is_problem=True)
    decision = decide_after_failure(inputs) or decide_by_triggers(inputs, event_log)
    reason = "; ".join([decision.reason, *inputs.changes.notes])
    empty = inputs.snapshot.window.empty if inputs.snapshot.window else ()
    left_out = inputs.snapshot.left_out
    decision = replace(decision, reason=reason, left_out=left_out, empty_spans=empty)
    if isinstance(decision, NotDue) and decision.exit_code == EXIT_PUSHED and history.failure_code:
        # Whatever keeps the next run from starting, the last one failed, and that is not mended.
        is_stopped = history.failure_code == EXIT_INTERRUPTED
        decision = replace(decision, exit_code=EXIT_FAILED if is_stopped else history.failure_code)
    return decision


def _code_under_hold(history: History) -> int:
    """The exit code of what was wrong before a hold, which mends nothing."""
    if history.wrong is not None:
        return int(history.wrong.details["exit_code"])
    # What was stopped goes on after the hold.
    return EXIT_PUSHED if continue_interrupted(history) else history.failure_code or EXIT_PUSHED


def is_run_under_way(layout: Layout) -> bool:
    """Whether a run of the pipeline is under way, or about to begin."""
    return is_held(layout.lock) or is_held(layout.scheduled)
