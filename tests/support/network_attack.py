"""Starts servers of local clusters while another machine tries to connect; prints JSON.

The other machine is a network namespace, at the other end of a cable.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from components.processes.ports import free_ports
from components.processes.server import serve
from trainer_module.tf_config import TFConfig

ROUNDS = 6
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_ADDRESSES = ("10.99.1.1", "fd99::1")
"""Of this machine, as the other one sees it."""
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""Which every gRPC server answers."""


def enter_new_network() -> None:
    user, group = os.getuid(), os.getgid()
    flags = _NEW_NETWORK | (_NEW_USER if user else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True, capture_output=True)


def plug_in(device: str, number: int) -> None:
    ip("link set lo up")
    ip(f"addr add 10.99.1.{number}/24 dev {device}")
    ip(f"addr add fd99::{number}/64 dev {device} nodad")
    ip(f"link set {device} up")


def is_answered(connection: socket.socket) -> bool:
    connection.settimeout(1)
    with suppress(OSError):
        connection.sendall(_HELLO)
        return bool(connection.recv(100))
    return False


def attack(port: int, parent: Connection) -> tuple[int, int]:
    """The connections that were made until the parent says something, and those answered then."""
    made = []
    parent.send("begun")
    while not parent.poll():
        for address in _ADDRESSES:
            with suppress(OSError):
                made.append(socket.create_connection((address, port), 0.02))
    parent.recv()
    answered = sum(map(is_answered, made))
    for connection in made:
        connection.close()
    return len(made), answered


def be_other_machine(parent: Connection) -> None:
    enter_new_network()
    parent.send(os.getpid())
    parent.recv()
    plug_in("theirs", 2)
    while port := parent.recv():
        parent.send(attack(port, parent))


def start_server(port: int) -> None:
    ready = threading.Event()
    config = TFConfig({"worker": [f"localhost:{port}"]}, "worker", 0)
    threading.Thread(target=serve, args=(config, None, ready.set), daemon=True).start()
    assert ready.wait(30)


def main() -> None:
    import tensorflow as tf  # noqa: F401 - so that it takes no time in the first round

    enter_new_network()
    here, there = Pipe()
    child = os.fork()
    if child == 0:
        try:
            be_other_machine(there)
        finally:
            os._exit(0)
    ip("link add ours type veth peer name theirs")
    ip(f"link set theirs netns {here.recv()}")
    plug_in("ours", 1)
    here.send("plugged in")
    # It is reached where nothing keeps the network out.
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as open_one:
        here.send(open_one.getsockname()[1])
        here.recv()
        time.sleep(0.1)
    here.send("up")
    open_made, _ = here.recv()
    rounds = []
    for port in free_ports(ROUNDS):
        here.send(port)
        here.recv()
        start_server(port)
        time.sleep(0.05)
        here.send("up")
        made, answered = here.recv()
        with socket.create_connection(("localhost", port), 5) as own:
            rounds.append({"made": made, "answered": answered, "own": is_answered(own)})
    here.send(0)
    os.waitpid(child, 0)
    print(json.dumps({"open": open_made, "rounds": rounds}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
