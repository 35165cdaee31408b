"""Keeps TensorFlow's servers of a local cluster off the network."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

LOCALHOST = "localhost"
"""The host of all tasks of a local cluster."""

logger = logging.getLogger(__name__)


@contextmanager
def kept_local(cluster: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Keeps what starts to listen in a `with` block to this machine, if all of the cluster is here.

    TensorFlow's servers listen on every network interface and obey whoever connects; no option
    changes that.
    """
    addresses = [address for addresses in cluster.values() for address in addresses]
    is_local = all(address.startswith(f"{LOCALHOST}:") for address in addresses)
    if not addresses or not is_local:
        yield
        return
    before = _listening_sockets()
    yield
    for inode, descriptor in _listening_sockets().items():
        if inode not in before:
            _keep_local(descriptor)


def _listening_sockets() -> dict[int, int]:
    """This process's TCP sockets that wait for connections: descriptors by inode."""
    found = {}
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            status = os.fstat(descriptor)
            if stat.S_ISSOCK(status.st_mode) and _is_listening(descriptor):
                found[status.st_ino] = descriptor
        except OSError:  # It was closed meanwhile.
            continue
    return found


def _is_listening(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as twin:
        is_tcp = twin.family in (socket.AF_INET, socket.AF_INET6)
        return is_tcp and bool(twin.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _keep_local(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as twin:
        try:
            twin.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        except PermissionError:  # Before Linux 5.7, of those who are not root.
            logger.warning(
                "Port %s of TensorFlow is open to the network, and asks for no password; this "
                "Linux lets only root change that: shield it by a firewall.",
                twin.getsockname()[1],
            )
