"""Asks a server over HTTP, in a process of its own: as fast as it answers, or at a fixed rate.

At a fixed rate requests are due at times that the server has no say in, and latency counts from
then: a server that is slow for a second cannot hide the requests that would have come meanwhile.
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

_LATE_SECONDS = 30.0
"""How long an answer may take."""
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_OK = 200
_AGAIN_SECONDS = 0.01
"""Before a connection that was refused is tried again."""


@dataclass
class Result:
    """What became of the requests."""

    latencies: list[float] = field(default_factory=list)
    """Seconds of those that were answered."""
    failures: list[tuple[float, str]] = field(default_factory=list)
    """When others failed, in seconds since 1970, and why."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """What is printed; latencies in milliseconds."""
        found = np.array(self.latencies or [np.nan]) * 1000
        return {
            "answered": len(self.latencies),
            "rate": len(self.latencies) / self.seconds,
            "cpu": time.process_time() / self.seconds,
            **{f"p{q}": float(np.percentile(found, q)) for q in (50, 99)},
            "failed": dict(Counter(reason for _, reason in self.failures)),
            "first_failure": min((at for at, _ in self.failures), default=None),
        }


class _Client(asyncio.Protocol):
    """A connection by which one request at a time is asked.

    It reads no more of HTTP than it has to: on the machine of the server, what a client takes of
    a core is missing there.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._received = bytearray()
        self.due = self.asked = 0.0
        """When its request should have been asked and when it was, in seconds since 1970."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Is ready."""
        self._transport = cast("asyncio.Transport", transport)
        self._load.take_idle(self)

    def ask(self, request: bytes, due: float) -> None:
        """Sends a request."""
        self._received.clear()
        self.due, self.asked = due, time.time()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Takes a part of an answer."""
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        length = _LENGTH.search(self._received, 0, head) if head > 0 else None
        if length is None or len(self._received) < head + 4 + int(length[1]):
            return
        self._load.take_answer(self, int(self._received[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing comes any more."""
        self._load.take_end(self, ConnectionResetError.__name__)

    def close(self) -> None:
        """Ends it."""
        self._transport.close()

    def abort(self) -> None:
        """Ends it at once, whatever has not been sent."""
        self._transport.abort()


class Load:
    """Clients that ask for some seconds."""

    def __init__(self, url: str, body: bytes, headers: str, rate: float, seconds: float) -> None:
        """Args:
        url: to post to.
        body: of every request.
        headers: of every request, a line each.
        rate: requests a second; 0 asks again as soon as there is an answer.
        seconds: to go on for.
        """
        to = urlsplit(url)
        self._host, self._port = to.hostname or "", to.port or 80
        head = f"POST {to.path} HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Length: {len(body)}\r\n"
        self._request = f"{head}{headers}\r\n".encode() + body
        self._rate, self._seconds = rate, seconds
        self._due: deque[float] = deque()
        self._idle: list[_Client] = []
        self._asking: set[_Client] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._result = Result()

    async def run(self, clients: int) -> Result:
        """Asks by so many connections."""
        begin = time.time()
        self._end = begin + self._seconds
        with _every(1 / self._rate, self._ask_due) if self._rate else nullcontext():
            for _ in range(clients):
                self._connect()
            while time.time() < self._end or self._asking:
                await asyncio.sleep(min(1.0, max(0.01, self._end - time.time())))
                self._give_up_late()
        for client in self._idle:
            client.close()
        self._result.seconds = time.time() - begin
        return self._result

    def take_idle(self, client: _Client) -> None:
        """Gives a client what is due, if it is not over."""
        self._idle.append(client)
        self._ask_next()

    def take_answer(self, client: _Client, status: int) -> None:
        """Counts an answer."""
        self._asking.discard(client)
        now = time.time()
        if status == _OK:
            self._result.latencies.append(now - client.due)
        else:
            self._result.failures.append((now, f"status {status}"))
        self.take_idle(client)

    def take_end(self, client: _Client, reason: str) -> None:
        """Counts a failure if there was a request, and connects anew."""
        if client in self._asking:
            self._asking.discard(client)
            self._result.failures.append((time.time(), reason))
        if client in self._idle:
            self._idle.remove(client)
        if time.time() < self._end:
            self._connect()

    def _ask_due(self, times: int) -> None:
        now = time.time()
        if now < self._end:
            self._due.extend(now - place / self._rate for place in reversed(range(times)))
            self._ask_next()

    def _ask_next(self) -> None:
        while self._idle:
            now = time.time()
            if now >= self._end or (self._rate and not self._due):
                return
            client = self._idle.pop()
            self._asking.add(client)
            client.ask(self._request, self._due.popleft() if self._rate else now)

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
                await asyncio.sleep(_AGAIN_SECONDS)

    def _give_up_late(self) -> None:
        for client in list(self._asking):
            if time.time() - client.asked > _LATE_SECONDS:
                self._asking.discard(client)
                self._result.failures.append((time.time(), TimeoutError.__name__))
                client.abort()  # Which ends it, and so connects anew.


@contextmanager
def _every(seconds: float, tick: Callable[[int], None]) -> Iterator[None]:
    """Has a function called again and again, with how often its time has come since the last call.

    The timers of event loops wait whole milliseconds, which would count as time of the server's.
    """
    libc = ctypes.CDLL(None)
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
    whole, rest = divmod(round(seconds * 1e9), 10**9)
    libc.timerfd_settime(timer, 0, (ctypes.c_long * 4)(whole, rest, whole, rest), None)
    loop = asyncio.get_running_loop()
    loop.add_reader(timer, lambda: tick(int.from_bytes(os.read(timer, 8), sys.byteorder)))
    try:
        yield
    finally:
        loop.remove_reader(timer)
        os.close(timer)


def main() -> None:
    """Prints what became of the requests, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("body", type=Path)
    parser.add_argument("--header", action="append", default=[], help="as `name: value`")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--core", type=int, help="that all clients run on")
    given = parser.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    body = given.body.read_bytes()
    headers = "".join(f"{header}\r\n" for header in given.header)
    load = Load(given.url, body, headers, given.rate, given.seconds)
    found = uvloop.run(load.run(given.clients))
    print(json.dumps(found.to_json()))


if __name__ == "__main__":
    main()
