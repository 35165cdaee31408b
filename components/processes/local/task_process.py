"""A task in a process of this machine: `python -m` this, with PARENT, EVENTS, MODULE and NAME."""

from __future__ import annotations

import json
import sys
from typing import IO, NoReturn

from components.processes.child import Channel, load_main, run_task
from components.processes.local.parent_watch import die_with_parent


def run_local_task(module: str, parent: int, events: int, stdin: IO[bytes]) -> NoReturn:
    """Runs a task to its end, which is that of this process; it does not outlive its launcher.

    Args:
      module: its `main` is called.
      parent: the process id of this process's parent.
      events: the descriptor of the channel.
      stdin: standard input, which holds the payload.
    """
    payload = stdin.readline()
    die_with_parent(parent)
    run_task(load_main(module), json.loads(payload), Channel(events))


if __name__ == "__main__":
    _, process, descriptor, name_of_module, _ = sys.argv
    run_local_task(name_of_module, int(process), int(descriptor), sys.stdin.buffer)
