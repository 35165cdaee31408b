"""Sees to it that a child process and all that it starts end with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ties this process group to a parent, and to who holds the other end of standard input.

    Call it before anything starts a thread, and when standard input has been read; that becomes
    /dev/null.

    Args:
      parent: its process id.
    """
    be_killed_with(parent)
    watched = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # The kernel's signal reaches this process alone, and a thread of it would die with it. A
    # process beside it lives to end the children of this one, too.
    if os.fork() == 0:
        _kill_group_at_end_of(watched)
    os.close(watched)


def be_killed_with(parent: int) -> None:
    """Lets the kernel kill this process when its parent's thread that started it has ended.

    Args:
      parent: its process id.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It died before the line above.
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_group_at_end_of(watched: int) -> None:
    """Waits until nobody can write to a pipe, then ends this process group."""
    try:
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            # Pipes to the parent would look open although the task has ended.
            if descriptor != watched:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        while os.read(watched, 1024):
            pass
    finally:
        os.killpg(0, signal.SIGKILL)
