"""Keeps TensorFlow's servers of a local cluster off the network.

TensorFlow's server listens on every network interface and executes the requests of any client. No
option changes this, but the server can share its port with other sockets. So this process first
listens on the port with a guard, a socket that drops all connections. A filter on the port makes
Linux pass only connections from this machine to TensorFlow's socket. Guard and filter exist before
TensorFlow listens and as long as the process. Connections from other machines get no answer.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from trainer_module.errors import TrainingError
from trainer_module.tf_config import TFConfig

LOCALHOST = "localhost"
"""The host name of all tasks of a local cluster."""

_REUSE_PORT = "TF_GRPC_REUSE_PORT"
"""The environment variable that makes TensorFlow's server share its port."""
_LOOPBACK = "lo"
_SO_ATTACH_FILTER = 26
_SO_ATTACH_REUSEPORT_CBPF = 51
_Instruction = tuple[int, int, int, int]
"""An instruction of Linux's classic BPF: code, jump if true, jump if false, operand."""
_DROP: _Instruction = (0x06, 0, 0, 0)
_LOAD_INTERFACE: _Instruction = (0x20, 0, 0, 0xFFFFF008)
_TO_FIRST_SOCKET: _Instruction = (0x06, 0, 0, 0)
_TO_SECOND_SOCKET: _Instruction = (0x06, 0, 0, 1)

_GUARDS: dict[int, socket.socket] = {}
"""The guard of each local port; guards are never closed."""


@contextmanager
def kept_local(config: TFConfig | None) -> Iterator[None]:
    """Keeps the server that this process starts in a `with` block off the network.

    Args:
      config: the cluster and the task of this process. The function does nothing for None, and for
        a cluster with tasks on other machines.

    Raises:
      OSError: another process listens on the task's port.
      TrainingError: the server would accept connections from the network, and has been stopped.
    """
    before = find_exposed()
    keep_port_local(config)
    yield
    ports = {port for inode, port in find_exposed().items() if inode not in before}
    if config and _is_local(config) and ports:
        _shut_down(ports)
        raise TrainingError(
            f"TensorFlow listened on port {', '.join(map(str, sorted(ports)))}, which Scopeline "
            "cannot restrict to this machine, so the server was stopped; install the versions in "
            "uv.lock."
        )


def keep_port_local(config: TFConfig | None) -> None:
    """Guards the port of a task, before this process starts a server on it.

    Args:
      config: the cluster and the task, as for `kept_local`.

    Raises:
      OSError: another process listens on the task's port.
      TrainingError: this system does not support the filter.
    """
    if config is None or not _is_local(config):
        return
    os.environ[_REUSE_PORT] = "true"
    port = int(config.address.rpartition(":")[2])
    if port not in _GUARDS:
        _GUARDS[port] = _guard(port)


def find_exposed() -> dict[int, int]:
    """Returns the TCP ports of this process that accept connections from other machines.

    Returns:
      The ports by the inodes of their sockets.
    """
    return {
        inode: duplicate.getsockname()[1]
        for inode, duplicate in _tcp_sockets()
        if duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        and not _is_restricted(duplicate)
    }


def _is_local(config: TFConfig) -> bool:
    addresses = [address for addresses in config.cluster.values() for address in addresses]
    return all(_is_loopback(address.rpartition(":")[0].strip("[]")) for address in addresses)


def _is_loopback(host: str) -> bool:
    try:
        return host == LOCALHOST or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_restricted(listening: socket.socket) -> bool:
    """Returns whether a socket is bound to the loopback, or shares its port with a guard."""
    host, port, *_ = address = listening.getsockname()
    guard = _GUARDS.get(port)
    is_guarded = guard is not None and guard.getsockname() == address
    shares = bool(listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))
    return (is_guarded and shares) or _is_loopback(host.removeprefix("::ffff:"))


def _guard(port: int) -> socket.socket:
    """Returns a socket that holds a port and drops all connections from other machines."""
    guard = socket.socket(_family_of_grpc())
    try:
        if guard.family is socket.AF_INET6:
            guard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # As in gRPC, lingering connections of an earlier server must not block the port.
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The socket shares its port only after binding, so binding fails if another process
        # uses the port.
        guard.bind(("", port))
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        _attach(guard, _SO_ATTACH_FILTER, _DROP)
        _attach(
            guard,
            _SO_ATTACH_REUSEPORT_CBPF,
            _LOAD_INTERFACE,
            (0x15, 0, 1, socket.if_nametoindex(_LOOPBACK)),
            _TO_SECOND_SOCKET,
            _TO_FIRST_SOCKET,
        )
        guard.listen()
    except BaseException:
        guard.close()
        raise
    return guard


def _family_of_grpc() -> socket.AddressFamily:
    """Returns the address family of gRPC's sockets: IPv6 if this machine has it, otherwise IPv4.

    On an IPv6 socket, gRPC accepts IPv4 connections as well.
    """
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return socket.AF_INET
    return socket.AF_INET6


def _attach(guard: socket.socket, option: int, *instructions: _Instruction) -> None:
    """Attaches a filter to a socket.

    Raises:
      TrainingError: the system does not support the filter.
    """
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(program, len(program))
    try:
        guard.setsockopt(
            socket.SOL_SOCKET,
            option,
            struct.pack("HP", len(instructions), ctypes.addressof(buffer)),
        )
    except OSError as error:
        raise TrainingError(
            "TensorFlow's servers accept every connection from every network, and this system has "
            f"no filter that restricts a cluster on {LOCALHOST} to this machine "
            f"({error.strerror}); train in one process, or, in a trusted network, write this "
            "machine's address in TF_CONFIG."
        ) from None


def _shut_down(ports: set[int]) -> None:
    """Shuts down all sockets of this process on the given ports."""
    for _, duplicate in _tcp_sockets():
        with suppress(OSError):  # The connection has ended.
            if duplicate.getsockname()[1] in ports:
                duplicate.shutdown(socket.SHUT_RDWR)


def _tcp_sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yields each TCP socket of this process: its inode, and a duplicate of the socket.

    The duplicate is closed when the iteration continues.
    """
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            status = os.fstat(descriptor)
            duplicate = (
                socket.socket(fileno=os.dup(descriptor)) if stat.S_ISSOCK(status.st_mode) else None
            )
        except OSError:  # Another thread has closed the descriptor.
            continue
        if duplicate is not None:
            with duplicate:
                if (
                    duplicate.family in (socket.AF_INET, socket.AF_INET6)
                    and duplicate.type == socket.SOCK_STREAM
                ):
                    yield status.st_ino, duplicate
