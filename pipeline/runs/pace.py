"""The pace of a component's work, and the time left."""

from __future__ import annotations

import math
import time

MIN_SECONDS, SHORT_SECONDS, MIN_SHARE = 2.0, 10.0, 0.1
"""The pace is known from `MIN_SECONDS` of work on, if `MIN_SHARE` of the work is done, and from
`SHORT_SECONDS` on otherwise: the first units often take longer."""


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
        is_early = seconds < SHORT_SECONDS and units < MIN_SHARE * total
        if seconds < MIN_SECONDS or is_early or units <= 0 or done >= total:
            return ""
        return f"{left} {_show(seconds * (total - done) / units)} left"


def _show(seconds: float) -> str:
    """Returns a duration, rounded up to 5 s, or to a minute or an hour if it is long."""
    rounded = max(5, 5 * math.ceil(seconds / 5))
    if rounded < 60:
        return f"{rounded} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
