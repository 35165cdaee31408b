"""Follows the log of a pod to its end, also over connections that break."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import threading

from kubernetes.client.exceptions import ApiException

from components.processes.kubernetes.api import NETWORK_ERRORS, KubernetesApi
from components.processes.kubernetes.objects import CONTAINER
from components.processes.kubernetes.pod import split_line
from components.processes.launcher import TAIL_LINES, WorkerEvent
from trainer_module.errors import ConfigError

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S* ?")
_PAUSE_SECONDS = 0.5


class PodLog(threading.Thread):
    """Copies a pod's output to this process's standard error, and takes the events out of it."""

    def __init__(self, api: KubernetesApi, pod: str, prefix: str) -> None:
        """Prepares to follow it.

        Args:
          api: where to read it.
          pod: its name.
          prefix: begins each line.
        """
        super().__init__(name=f"log of {pod}", daemon=True)
        self._api = api
        self._pod = pod
        self._prefix = prefix
        self._last = ""
        """The last line that had a time."""
        self._is_behind = False
        """Whether lines up to that one come again, after a connection broke."""
        self._stopped = threading.Event()
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        """The last lines."""
        self._events: collections.deque[WorkerEvent] = collections.deque()
        self.has_ended = threading.Event()
        """Is set by whoever learns that the container has ended."""
        self.error: ConfigError | None = None
        """Why it cannot be read at all."""

    def take_events(self) -> list[WorkerEvent]:
        """The events since the last call."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def stop(self) -> None:
        """Lets the thread end, at the next line or the end of the connection."""
        self._stopped.set()

    def run(self) -> None:
        """Reads until the container has ended, and all that it wrote has come."""
        while not self._stopped.is_set():
            had_ended = self.has_ended.is_set()
            if self._read(follow=not had_ended) and had_ended:
                return
            self._stopped.wait(_PAUSE_SECONDS)

    def _read(self, follow: bool) -> bool:
        """Reads until the connection ends; returns whether that may be the end of the log."""
        since = self._last.partition(" ")[0] or None
        self._is_behind = since is not None
        try:
            for line in self._api.read_log(self._pod, CONTAINER, since, follow):
                if self._stopped.is_set():
                    return True
                self._handle_line(line)
        except ConfigError as error:
            self.error = error
            self._stopped.set()
        except ApiException as error:
            return error.status == 404  # The pod is gone, and its log with it.
        except NETWORK_ERRORS:
            return False
        return True

    def _handle_line(self, line: str) -> None:
        # A line without a time is a message of the kubelet.
        stamped = _STAMPED.match(line)
        if stamped:
            if self._is_behind:
                # Its second comes again as a whole. If it was rotated away, what follows is new.
                is_later = stamped[1] > self._last[: len(stamped[1])]
                self._is_behind = not is_later and line != self._last
                if not is_later:
                    return
            self._last = line
        text, event = split_line(line[stamped.end() :] if stamped else line)
        if event is not None:
            self._events.append(event)
        if text is not None:
            self.tail.append(text)
            with contextlib.suppress(OSError):
                os.write(2, f"{self._prefix}{text}\n".encode())
