"""Becomes the process of a pod: its own host name, network, /tmp and volumes, all else read-only.

Takes one argument, JSON; runs without anything but the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_HOSTNAME, _NEW_NETWORK = 0x20000, 0x4000000, 0x40000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
_PDEATHSIG = 1


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, flags: int) -> None:
    _check(_LIBC.mount(source.encode(), target.encode(), None, flags, None), f"mount {target}")


def _bind(descriptor: int, target: str) -> None:
    _mount(f"/proc/self/fd/{descriptor}", target, _BIND)


def open_network() -> int:
    """A network of its own with nothing but a loopback; call it in a thread that then ends."""
    import fcntl
    import struct

    _check(_LIBC.unshare(_NEW_NETWORK), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        up = struct.pack("16sh", b"lo", 0x1 | 0x40)
        fcntl.ioctl(probe, 0x8914, up)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def main() -> None:
    given = json.loads(sys.argv[1])
    _LIBC.prctl(_PDEATHSIG, signal.SIGKILL)
    _check(_LIBC.setns(given["network"], _NEW_NETWORK), "setns")
    _check(_LIBC.unshare(_NEW_MOUNTS | _NEW_HOSTNAME), "unshare")
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    name = given["hostname"].encode()
    _check(_LIBC.sethostname(name, len(name)), "sethostname")
    # What lies below /tmp is out of sight as soon as that is another folder.
    opened = {target: os.open(source, os.O_PATH) for target, source in given["mounts"].items()}
    for target, descriptor in sorted(opened.items()):
        if target != "/etc/hosts":
            Path(target).mkdir(parents=True, exist_ok=True)
        _bind(descriptor, target)
    _mount("none", "/", _REMOUNT | _BIND | _READ_ONLY)
    os.chdir(given["folder"])
    os.execvpe(given["command"][0], given["command"], os.environ)  # noqa: S606


if __name__ == "__main__":
    main()
