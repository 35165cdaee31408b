"""Runs that are started once more: those that were interrupted, and those that failed."""

from __future__ import annotations

from pipeline.config.sections.data import NO_SPAN
from pipeline.exit_codes import EXIT_INTERRUPTED, EXIT_UNUSABLE
from pipeline.records.event_log import LoggedEvent
from pipeline.schedule.cron import show_time
from pipeline.schedule.decisions.history import History
from pipeline.schedule.decisions.inputs import DecisionInputs, Due, NotDue


def continue_interrupted(history: History) -> Due | None:
    """Continues the run that was decided on last, if it never began, was killed or was stopped."""
    due, started = history.due, history.started
    if due is not None and not history.was_started:
        return _repeat(due, "goes on with what was decided and did not begin")
    continuations = history.continuations + 1
    if history.is_unfinished and started is not None:
        if due is None or history.is_by_hand:
            return _continue_run_by_hand(started, continuations)
        return _repeat(due, "goes on with the run that was interrupted", continuations)
    if due is not None and history.failure_code == EXIT_INTERRUPTED:
        return _repeat(due, "goes on with the run that was stopped", continuations)
    return None


def decide_after_failure(inputs: DecisionInputs) -> Due | NotDue | None:
    """Decides whether a run that failed is tried again.

    Returns:
      None if the failure has no say: there was none, or there is new reason to run.
    """
    history, retry = inputs.history, inputs.settings.retry
    if history.failure_code is None or history.due is None or history.end is None:
        return None
    if history.failure_code == EXIT_UNUSABLE:
        return _decide_after_unusable(inputs, history.end.message)
    if inputs.settings.on_new_data and inputs.has_changed:
        return None
    if history.attempt < retry.attempts:
        retry_at = history.failed_at(inputs.now) + retry.backoff * 2 ** (history.attempt - 1)
        if inputs.now >= retry_at or history.end.details.get("how") == "killed":
            attempt = history.attempt + 1
            reason = f"attempt {attempt} of {retry.attempts}"
            return _repeat(history.due, reason, attempt=attempt)
        when = show_time(retry_at, inputs.settings)
        return NotDue(f"the last run failed; it is tried again at {when}")
    if inputs.firings or inputs.has_changed:
        return None
    tried = f"failed {history.attempt} times" if history.attempt > 1 else "failed"
    return NotDue(f"the last run {tried}; the next waits for the clock, or for new data")


def _decide_after_unusable(inputs: DecisionInputs, message: str) -> Due | NotDue:
    """Tries again once data, config or schema have changed, or when the clock fires."""
    if inputs.has_changed:
        return inputs.due("data or config have changed since a run could not use them")
    if inputs.firings:
        # Neither data nor config may have been at fault, but a server that was down.
        return inputs.due(f"{inputs.firings_in_words}; the last run could not use data or config")
    return inputs.not_due(f"the last run could not use data or config: {message}")


def _repeat(
    decided: LoggedEvent, reason: str, continuations: int = 0, attempt: int | None = None
) -> Due:
    """An earlier decision once more, with its window.

    Args:
      decided: the earlier decision.
      reason: why it is repeated.
      continuations: how often in a row it was interrupted.
      attempt: which attempt this is; default: the earlier decision's.
    """
    details = decided.details | {"continued": continuations}
    if attempt is not None:
        details["attempt"] = attempt
    return Due(
        f"{reason} ({details['because']})",
        details["through"],
        details.get("validate_only", False),
        details,
    )


def _continue_run_by_hand(started: LoggedEvent, continuations: int) -> Due:
    """Continues a run that no decision had started, up to the span it was at."""
    newest = started.details["window"][-1]
    through = None if newest == NO_SPAN else newest
    reason = f"goes on with the run that was interrupted ({started.message})"
    details = {
        "because": started.message,
        "through": through,
        "attempt": 1,
        "continued": continuations,
    }
    return Due(reason, through, False, details)
