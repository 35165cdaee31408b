"""How long work tells a runner how far it has come, without knowing who listens."""

from __future__ import annotations

import logging
from typing import Any

PROGRESS_LOGGER = "scopeline.progress"


def report_progress(done: int, total: int, unit: str, detail: str = "") -> None:
    """Logs `done` of `total` units, with both numbers and the detail as extra attributes."""
    extra = {"done": done, "total": total, "unit": unit, "detail": detail}
    logging.getLogger(PROGRESS_LOGGER).info("%s %d of %d", unit, done, total, extra=extra)


def report_ready() -> None:
    """Logs that the strategy is built: every process of a cluster has answered."""
    logging.getLogger(PROGRESS_LOGGER).info("the strategy is built", extra={"ready": True})


def report_notice(text: str) -> None:
    """Logs what whoever watches should read at once, however far the work has come."""
    logging.getLogger(PROGRESS_LOGGER).warning(text, extra={"notice": True})


def report_search(done: int, total: int | None, detail: str) -> None:
    """Logs how many trials of a search have ended, of so many if their number ends it."""
    extra = {"done": done, "total": total, "unit": "trial", "detail": detail}
    of = "" if total is None else f" of {total}"
    logging.getLogger(PROGRESS_LOGGER).info("%d%s trials", done, of, extra=extra)


def report_trial(trial: dict[str, Any]) -> None:
    """Logs a trial that has ended, as plain values: number, state, values, value, cause."""
    text = f"trial {trial['number']} {trial['state']}: {trial['value']} with {trial['values']}"
    logging.getLogger(PROGRESS_LOGGER).info("%s", text, extra={"trial": trial})
