"""How long work tells a runner how far it has come, without knowing who listens."""

from __future__ import annotations

import logging

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
