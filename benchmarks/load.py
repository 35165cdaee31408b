"""Asks a server over HTTP, in a process of its own: as fast as it answers, or at a fixed rate.

At a fixed rate requests are due at times that the server has no say in, and latency counts from
then: a server that is slow for a second cannot hide the requests that would have come meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import Counter
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

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[int] | None = None
        self._asked = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Is ready."""
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[int]:
        """Sends a request; gives the status of its answer, once all of it is there."""
        self._received.clear()
        self._asked = time.time()
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            self._answer.set_exception(ConnectionResetError())
        else:
            self._transport.write(request)
        return self._answer

    def give_up_if_late(self) -> None:
        """Waits no longer for an answer that should be there."""
        if time.time() - self._asked > _LATE_SECONDS and self._answer and not self._answer.done():
            self._answer.set_exception(TimeoutError())

    def data_received(self, data: bytes) -> None:
        """Takes a part of an answer."""
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        length = _LENGTH.search(self._received, 0, head) if head > 0 else None
        if length is None or len(self._received) < head + 4 + int(length[1]):
            return
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(int(self._received[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing comes any more."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())

    def close(self) -> None:
        """Ends it."""
        self._transport.close()


async def run(
    url: str, body: bytes, headers: str, clients: int, rate: float, seconds: float
) -> Result:
    """Asks for some seconds.

    Args:
      url: to post to.
      body: of every request.
      headers: of every request, a line each.
      clients: connections.
      rate: requests a second; 0 asks again as soon as there is an answer.
      seconds: to go on for.
    """
    to = urlsplit(url)
    head = f"POST {to.path} HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}{headers}\r\n".encode() + body
    result, begin = Result(), time.time()
    due = iter(np.arange(0, seconds, 1 / rate).tolist()) if rate else None
    connections: set[_Client] = set()

    async def look() -> None:
        while True:  # A timer for each request would cost as much as the rest.
            await asyncio.sleep(1)
            for connection in connections:
                connection.give_up_if_late()

    async def client() -> None:
        connection: _Client | None = None
        while (now := time.time() - begin) < seconds:
            at = now if due is None else next(due, None)
            if at is None:
                break
            if at > now:
                await asyncio.sleep(at - now)
            try:
                if connection is None:
                    connection = await _connect(to.hostname or "", to.port or 80)
                    connections.add(connection)
                status = await connection.ask(request)
            except (OSError, TimeoutError) as error:
                if connection is not None:
                    connections.discard(connection)
                    connection.close()
                connection = None
                result.failures.append((time.time(), type(error).__name__))
                continue
            if status == _OK:
                result.latencies.append(time.time() - begin - at)
            else:
                result.failures.append((time.time(), f"status {status}"))
        if connection is not None:
            connection.close()

    looking = asyncio.create_task(look())
    await asyncio.gather(*(client() for _ in range(clients)))
    looking.cancel()
    result.seconds = time.time() - begin
    return result


async def _connect(host: str, port: int) -> _Client:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(_Client, host, port)
    return connection


def main() -> None:
    """Prints what became of the requests, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("body", type=Path)
    parser.add_argument("--header", action="append", default=[], help="as `name: value`")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    body = given.body.read_bytes()
    headers = "".join(f"{header}\r\n" for header in given.header)
    found = uvloop.run(run(given.url, body, headers, given.clients, given.rate, given.seconds))
    print(json.dumps(found.to_json()))


if __name__ == "__main__":
    main()
