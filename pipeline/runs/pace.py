"""The pace of a component's work, and the time left."""

from __future__ import annotations

import math
import time

from trainer_module.settings.durations import show_seconds

MIN_SECONDS = 2.0
"""The seconds of work from which the pace is known."""


class Pace:
    """The mean pace since the first figure of the present work."""

    def __init__(self) -> None:
        self._total: float | None = None
        self._first = self._last = (0.0, 0.0)

    def time_left(self, done: float | None, total: float | None, left: str) -> str:
        """Returns the time left in words, such as `about 40 s left`, or "" if it is not known.

        The pace counts from the first figure, as work before it, such as the tracing of a graph,
        is not repeated. A figure below the last one, or another total, begins other work.

        Args:
          done: the finished units, or None.
          total: the number of all units, or None.
          left: the words before the time, or an empty string if no time is wanted.
        """
        if done is None or total is None or not left:
            return ""
        now = time.monotonic()
        if total != self._total or done < self._last[1]:
            self._total, self._first = total, (now, done)
        self._last = (now, done)
        seconds, units = now - self._first[0], done - self._first[1]
        if seconds < MIN_SECONDS or units <= 0 or done >= total:
            return ""
        return f"{left} {_show(seconds * (total - done) / units)} left"


def _show(seconds: float) -> str:
    """Returns a duration, rounded up to 5 s, or to a minute or an hour if it is long."""
    if seconds <= 60:
        return show_seconds(max(5, 5 * math.ceil(seconds / 5)))
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
