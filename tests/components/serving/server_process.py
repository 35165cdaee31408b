"""The command `serve` as a process of its own, and what tests wait for."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import requests

from components.serving.server.options import KEY_VARIABLE


def wait_for(found: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    """What `found` gives, once that is something."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert process.poll() is None
        try:
            if value := found():
                return value
        except requests.ConnectionError:
            pass
        time.sleep(0.05)
    raise AssertionError("it did not come")


def without_key() -> dict[str, str]:
    """The environment of a server that asks for no key."""
    return {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
