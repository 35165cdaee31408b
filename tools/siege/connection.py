"""Raw connections of a hostile client, and the responses to them."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterable

CLOSED, SILENT = 0, -1
"""The marks instead of a status: the connection was closed, or no response came in time."""
ANSWER_SECONDS = 5.0
"""The seconds within which a server must answer a request or close its connection."""
_HEAD = re.compile(rb"HTTP/1\.\d (\d{3})[^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_INFORMATION = 200
"""The status below which a response is only informational."""
_PIECE = 1 << 20
_CONNECT_SECONDS = 5.0


class Connection:
    """A raw connection to a server."""

    def __init__(self, port: int) -> None:
        """Connects to a local port.

        Raises:
          OSError: the connection is refused.
        """
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Sends bytes; returns whether the connection accepted all of them."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def close_sending(self) -> None:
        """Closes the sending side of the connection."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Resets the connection immediately."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def statuses(self, count: int = 1, seconds: float = ANSWER_SECONDS) -> list[int]:
        """Returns the statuses of the next responses, until the connection is closed or time has
        run out.

        Args:
          seconds: the timeout for all responses together.
        """
        until, found = time.monotonic() + seconds, list[int]()
        while len(found) < count:
            if status := self._take():
                found += [status] if status >= _INFORMATION else []
                continue
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                data = self._socket.recv(_PIECE)
            except TimeoutError:
                return [*found, SILENT]
            except OSError:
                return [*found, CLOSED]
            if not data:
                return [*found, CLOSED]
            self._received += data
        return found

    def _take(self) -> int:
        """Removes a complete response from the buffer; returns its status, or 0 without a
        response.
        """
        head = _HEAD.match(self._received)
        if head is None:
            return 0
        length = _LENGTH.search(head[2])
        end = head.end() + (int(length[1]) if length else 0)
        if len(self._received) < end:
            return 0
        status = int(head[1])
        del self._received[:end]
        return status


def request(
    path: str, body: bytes = b"", headers: Iterable[tuple[str, str]] = (), method: str = "POST"
) -> bytes:
    """Returns the bytes of an HTTP request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: siege", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def exchange(port: int, data: bytes, count: int = 1, seconds: float = ANSWER_SECONDS) -> list[int]:
    """Sends bytes over a new connection; returns the statuses as `Connection.statuses` does."""
    try:
        with Connection(port) as connection:
            connection.send(data)  # Even if this fails, there may be an answer.
            return connection.statuses(count, seconds)
    except OSError:
        return [CLOSED]


def send_slowly(connections: list[Connection], data: bytes, seconds: float) -> None:
    """Sends a byte per second over each connection, until the timeout or until all are closed."""
    until, position = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        sent = [connection.send(data[position % len(data) :][:1]) for connection in connections]
        position += 1
        if not any(sent):
            return
        time.sleep(1.0)
