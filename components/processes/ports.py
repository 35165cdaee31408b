"""Ports for servers that are about to start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_CANDIDATES = range(10_000, 65_536)
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Returns distinct ports on which no server listens at present.

    The ports are outside the range for outgoing connections.

    Raises:
      OSError: there are too few free ports.
    """
    low, high = map(int, _EPHEMERAL_RANGE.read_text().split())
    candidates = [port for port in _CANDIDATES if not low <= port <= high] or list(_CANDIDATES)
    random.shuffle(candidates)
    ports: list[int] = []
    while len(ports) < count:
        if not candidates:
            raise OSError(f"{count} free ports are needed, but only {len(ports)} were found")
        if is_free(port := candidates.pop()):
            ports.append(port)
    return ports


def is_free(port: int) -> bool:
    """Returns whether a server could listen on the port, on all interfaces."""
    with socket.socket() as probe:
        # As in gRPC, the old connections of an earlier server do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def answers(address: str, timeout: float = 2.0) -> bool:
    """Returns whether a server accepts a connection at `host:port` within a timeout in seconds."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()
    except OSError:
        return False
    return True
