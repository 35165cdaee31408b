"""The log of a pod, followed to its end, also across broken connections."""

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

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.\d]*(Z|[-+]\d\d:\d\d) ?(.*)", re.DOTALL)
_PAUSE_SECONDS = 0.5


class LogWindow:
    """The filter of lines that were already read before a connection broke.

    The API returns a log from a given second on, so that the lines of the last seconds are
    repeated. The lines of two seconds are stored, as those of standard output and standard error
    may be slightly out of order.
    """

    def __init__(self) -> None:
        self._seconds: collections.deque[tuple[int, collections.Counter[str]]] = collections.deque()
        self._repeated: collections.Counter[str] = collections.Counter()

    @property
    def since(self) -> str | None:
        """The time from which to read; None is from the beginning."""
        if not self._seconds:
            return None
        return f"{datetime.fromtimestamp(self._seconds[0][0], UTC):%Y-%m-%dT%H:%M:%SZ}"

    def reconnect(self) -> None:
        """Prepares for the log to be repeated from `since` on."""
        self._repeated = collections.Counter()
        for _, lines in self._seconds:
            self._repeated += lines

    def is_new(self, second: int, line: str) -> bool:
        """Returns whether a line was not read before, and stores it.

        Args:
          second: the line's time, since the epoch.
          line: the line with its time, as the API returns it.
        """
        if self._repeated[line] > 0:
            self._repeated[line] -= 1
            return False
        if not self._seconds or second > self._seconds[-1][0]:
            self._seconds.append((second, collections.Counter()))
            while len(self._seconds) > 2:
                self._seconds.popleft()
        self._seconds[-1][1][line] += 1
        return True


class PodLog(threading.Thread):
    """A thread that copies a pod's output to this process's standard error, and extracts the
    events.
    """

    def __init__(self, api: KubernetesApi, pod: str, prefix: str, is_over: Callable[[], bool]):
        """Creates the thread without starting it.

        Args:
          api: the client that reads the log.
          pod: the pod's name.
          prefix: the beginning of each line.
          is_over: returns whether the container has ended.
        """
        super().__init__(name=f"log of {pod}", daemon=True)
        self._api = api
        self._pod = pod
        self._prefix = prefix
        self._is_over = is_over
        self._stopped = threading.Event()
        self._window = LogWindow()
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        self.events: collections.deque[WorkerEvent] = collections.deque()
        self.error: ConfigError | None = None
        """The error because of which the log cannot be read."""

    @property
    def tail(self) -> list[str]:
        """The last lines of the log."""
        return list(self._tail)

    def stop(self) -> None:
        """Ends the thread, at the next line or the end of the connection."""
        self._stopped.set()

    def run(self) -> None:
        """Reads until the container has ended and the log is complete."""
        while not self._stopped.is_set():
            was_over = self._is_over()
            is_complete = self._read(follow=not was_over)
            if was_over and is_complete:
                return
            self._stopped.wait(_PAUSE_SECONDS)

    def _read(self, follow: bool) -> bool:
        """Reads until the connection ends; returns whether that may be the end of the log."""
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
            # After 404 there is neither the pod nor its log.
            return isinstance(error, ApiException) and error.status == 404
        return True

    def _handle_line(self, line: str) -> None:
        stamped = _STAMPED.fullmatch(line)
        # A line without a time is a message of the kubelet.
        if stamped:
            second = datetime.fromisoformat(stamped[1] + stamped[2]).timestamp()
            if not self._window.is_new(int(second), line):
                return
        text, event = split_line(stamped[3] if stamped else line)
        if event is not None:
            self.events.append(event)
        if text is not None:
            self._tail.append(text)
            with contextlib.suppress(OSError):
                os.write(2, f"{self._prefix}{text}\n".encode())
