"""Reading of a pod's log until its end. Reading resumes after a broken connection."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from kubernetes.client.exceptions import ApiException

from components.processes.kubernetes.api import NETWORK_ERRORS, KubernetesApi
from components.processes.kubernetes.objects import CONTAINER
from components.processes.kubernetes.pod import split_line
from components.processes.launcher import TAIL_LINES, WorkerEvent
from trainer_module.errors import ConfigError

_TIMED_LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.\d]*(Z|[-+]\d\d:\d\d) ?(.*)", re.DOTALL
)
_PAUSE_SECONDS = 0.5


class LogWindow:
    """A filter of lines that were already read before a connection broke.

    The API returns a log from the start of a second, so that lines of this second may be repeated.
    The filter stores the lines of the last two seconds, as the lines of standard output and
    standard error may be slightly out of order.
    """

    def __init__(self) -> None:
        self._seconds: collections.deque[tuple[int, collections.Counter[str]]] = collections.deque()
        """The last two seconds with lines, and the number of times that each line was read."""
        self._expected_repeats: collections.Counter[str] = collections.Counter()
        """The number of times that each line will be repeated."""

    @property
    def since(self) -> str | None:
        """The time of the first line to read, or None for the beginning of the log."""
        if not self._seconds:
            return None
        return f"{datetime.fromtimestamp(self._seconds[0][0], UTC):%Y-%m-%dT%H:%M:%SZ}"

    def reconnect(self) -> None:
        """Prepares for a new connection, which repeats the lines since `since`."""
        self._expected_repeats = collections.Counter()
        for _, lines in self._seconds:
            self._expected_repeats += lines

    def is_new(self, second: int, line: str) -> bool:
        """Returns whether a line was not read before, and stores the line.

        Args:
          second: the line's time in seconds since the epoch.
          line: the line with its time, in the API's format.
        """
        if self._expected_repeats[line] > 0:
            self._expected_repeats[line] -= 1
            return False
        if not self._seconds or second > self._seconds[-1][0]:
            self._seconds.append((second, collections.Counter()))
            while len(self._seconds) > 2:
                self._seconds.popleft()
        self._seconds[-1][1][line] += 1
        return True


class PodLog(threading.Thread):
    """A thread that copies a pod's output to the standard error of this process.

    The thread also extracts the events from the output.
    """

    def __init__(self, api: KubernetesApi, pod: str, prefix: str, has_ended: Callable[[], bool]):
        """Creates the thread, which is started later.

        Args:
          prefix: the beginning of each line in the standard error of this process.
        """
        super().__init__(name=f"log of {pod}", daemon=True)
        self._api = api
        self._pod = pod
        self._prefix = prefix
        self._has_ended = has_ended
        self._stopped = threading.Event()
        self._window = LogWindow()
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        self.events: collections.deque[WorkerEvent] = collections.deque()
        self.error: ConfigError | None = None
        """The error that prevents reading the log, or None."""

    @property
    def tail(self) -> list[str]:
        """The last lines of the log."""
        return list(self._tail)

    def stop(self) -> None:
        """Makes the thread end at the next line, or when the connection ends."""
        self._stopped.set()

    def run(self) -> None:
        """Reads the log until the container has ended and the log is complete."""
        while not self._stopped.is_set():
            had_ended = self._has_ended()
            is_complete = self._read(follow=not had_ended)
            if had_ended and is_complete:
                return
            self._stopped.wait(_PAUSE_SECONDS)

    def _read(self, follow: bool) -> bool:
        """Reads until the connection ends, and returns whether this may be the end of the log."""
        self._window.reconnect()
        try:
            for line in self._api.read_log(self._pod, CONTAINER, self._window.since, follow):
                if self._stopped.is_set():
                    return True
                self._handle_line(line)
        except ConfigError as error:
            self.error = error
            self._stopped.set()
        except (ApiException, *NETWORK_ERRORS) as error:
            # After status 404, the pod and its log do not exist any more.
            return isinstance(error, ApiException) and error.status == 404
        return True

    def _handle_line(self, line: str) -> None:
        timed = _TIMED_LINE.fullmatch(line)
        # A line without a time is a message of the kubelet.
        if timed:
            second = datetime.fromisoformat(timed[1] + timed[2]).timestamp()
            if not self._window.is_new(int(second), line):
                return
        text, event = split_line(timed[3] if timed else line)
        if event is not None:
            self.events.append(event)
        if text is not None:
            self._tail.append(text)
            with contextlib.suppress(OSError):
                os.write(2, f"{self._prefix}{text}\n".encode())
