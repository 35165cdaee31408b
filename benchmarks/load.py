"""Sends HTTP requests to a server from a separate process, at full speed or at a fixed rate.

At a fixed rate, the due times of requests do not depend on the server. The latency of a request
begins at its due time, so it includes the delay of requests that were due while the server was
slow.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np
import uvloop

_TIMEOUT_SECONDS = 30.0
"""The timeout of a request in seconds."""
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_OK = 200
_RETRY_SECONDS = 0.01
"""The pause in seconds before a refused connection is retried."""


@dataclass
class Result:
    """The results of the requests."""

    latencies: list[float] = field(default_factory=list)
    """The latencies of answered requests in seconds."""
    failures: list[tuple[float, str]] = field(default_factory=list)
    """The times of failures, in seconds since 1970, and their causes."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics to print, with latencies in milliseconds."""
        milliseconds = np.array(self.latencies or [np.nan]) * 1000
        return {
            "answered": len(self.latencies),
            "rate": len(self.latencies) / self.seconds,
            "cpu": time.process_time() / self.seconds,
            **{f"p{q}": float(np.percentile(milliseconds, q)) for q in (50, 99)},
            "failed": dict(Counter(reason for _, reason in self.failures)),
            "first_failure": min((at for at, _ in self.failures), default=None),
        }


class _Client(asyncio.Protocol):
    """A connection that sends one request at a time.

    The client parses as little HTTP as possible, because it takes CPU time from a server on the
    same machine.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._received = bytearray()
        self.due = self.sent = 0.0
        """The due time and the start of the request, in seconds since 1970."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the client as idle."""
        self._transport = cast("asyncio.Transport", transport)
        self._load.add_idle(self)

    def send(self, request: bytes, due: float) -> None:
        """Sends a request over the connection."""
        self._received.clear()
        self.due, self.sent = due, time.time()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collects the response, and reports the response when it is complete."""
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        length = _LENGTH.search(self._received, 0, head) if head > 0 else None
        if length is None or len(self._received) < head + 4 + int(length[1]):
            return
        self._load.on_answer(self, int(self._received[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports the end of the connection."""
        self._load.on_end(self, ConnectionResetError.__name__)

    def close(self) -> None:
        """Closes the connection after sending pending data."""
        self._transport.close()

    def abort(self) -> None:
        """Closes the connection immediately, and drops unsent data."""
        self._transport.abort()


class Load:
    """Clients that send requests for some seconds."""

    def __init__(self, url: str, body: bytes, headers: str, rate: float, seconds: float) -> None:
        """Args:
        url: the URL of the requests.
        body: the body of every request.
        headers: the headers of every request, one per line.
        rate: the requests per second, or 0 for a new request after each response.
        seconds: the duration.
        """
        address = urlsplit(url)
        self._host, self._port = address.hostname or "", address.port or 80
        head = f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        head += f"Content-Length: {len(body)}\r\n"
        self._request = f"{head}{headers}\r\n".encode() + body
        self._rate, self._seconds = rate, seconds
        self._due: deque[float] = deque()
        self._idle: list[_Client] = []
        self._busy: set[_Client] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._result = Result()

    async def run(self, clients: int) -> Result:
        """Sends requests over the given number of connections; returns the results."""
        begin = time.time()
        self._end = begin + self._seconds
        with _every(1 / self._rate, self._send_due) if self._rate else nullcontext():
            for _ in range(clients):
                self._connect()
            while time.time() < self._end or self._busy:
                await asyncio.sleep(min(1.0, max(0.01, self._end - time.time())))
                self._abort_late()
        for client in self._idle:
            client.close()
        self._result.seconds = time.time() - begin
        return self._result

    def add_idle(self, client: _Client) -> None:
        """Registers an idle client, and sends the next due request."""
        self._idle.append(client)
        self._send_next()

    def on_answer(self, client: _Client, status: int) -> None:
        """Records a response, and reuses the client."""
        self._busy.discard(client)
        now = time.time()
        if status == _OK:
            self._result.latencies.append(now - client.due)
        else:
            self._result.failures.append((now, f"status {status}"))
        self.add_idle(client)

    def on_end(self, client: _Client, reason: str) -> None:
        """Records a failure if a request was in progress, and reconnects."""
        if client in self._busy:
            self._busy.discard(client)
            self._result.failures.append((time.time(), reason))
        if client in self._idle:
            self._idle.remove(client)
        if time.time() < self._end:
            self._connect()

    def _send_due(self, times: int) -> None:
        now = time.time()
        if now < self._end:
            self._due.extend(now - n / self._rate for n in reversed(range(times)))
            self._send_next()

    def _send_next(self) -> None:
        while self._idle:
            now = time.time()
            if now >= self._end or (self._rate and not self._due):
                return
            client = self._idle.pop()
            self._busy.add(client)
            client.send(self._request, self._due.popleft() if self._rate else now)

    def _connect(self) -> None:
        task = asyncio.get_running_loop().create_task(self._open())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        while time.time() < self._end:
            try:
                await loop.create_connection(lambda: _Client(self), self._host, self._port)
                return
            except OSError as error:
                self._result.failures.append((time.time(), type(error).__name__))
                await asyncio.sleep(_RETRY_SECONDS)

    def _abort_late(self) -> None:
        for client in list(self._busy):
            if time.time() - client.sent > _TIMEOUT_SECONDS:
                self._busy.discard(client)
                self._result.failures.append((time.time(), TimeoutError.__name__))
                client.abort()  # The client then connects again.


@contextmanager
def _every(seconds: float, tick: Callable[[int], None]) -> Iterator[None]:
    """Calls a function periodically, with the number of intervals since its last call.

    The timers of event loops have a resolution of milliseconds, which would distort the latencies.
    """
    libc = ctypes.CDLL(None)
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
    whole_seconds, nanoseconds = divmod(round(seconds * 1e9), 10**9)
    libc.timerfd_settime(
        timer, 0, (ctypes.c_long * 4)(whole_seconds, nanoseconds, whole_seconds, nanoseconds), None
    )
    loop = asyncio.get_running_loop()
    loop.add_reader(timer, lambda: tick(int.from_bytes(os.read(timer, 8), sys.byteorder)))
    try:
        yield
    finally:
        loop.remove_reader(timer)
        os.close(timer)


def main() -> None:
    """Prints the results of the requests, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("body", type=Path)
    parser.add_argument("--header", action="append", default=[], help="a header, as `name: value`")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--core", type=int, help="the core for all clients")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    body = options.body.read_bytes()
    headers = "".join(f"{header}\r\n" for header in options.header)
    load = Load(options.url, body, headers, options.rate, options.seconds)
    result = uvloop.run(load.run(options.clients))
    print(json.dumps(result.to_json()))


if __name__ == "__main__":
    main()
