"""The process of a worker on this machine: its environment, its start and its end.

If the process that started the worker ends or is killed, the worker and all processes that it
started end too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from components.processes.ending import kill_group
from components.processes.worker import Channel, load_main, run_worker
from trainer_module.machine import count_cores
from trainer_module.strategies.network import LOCALHOST
from trainer_module.tf_config import VARIABLE

INTEROP_THREADS = "TF_NUM_INTEROP_THREADS"


def module_path() -> dict[str, str]:
    """Returns the variables with which a new interpreter finds the same modules as this process.

    PYTHONSAFEPATH prevents `python -m` from searching the current folder first.
    """
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    return {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


def worker_environment(computing: int) -> dict[str, str]:
    """Returns the environment of a worker on this machine.

    Args:
      computing: the number of workers that share this machine's cores.
    """
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= module_path()
    environment["no_grpc_proxy"] = without_proxy(environment, [LOCALHOST])
    if computing == 1:
        return environment
    shared = share_machine(computing)
    # Too few inter-op threads cause a deadlock, so the user's setting is ignored.
    return {**shared, **environment, INTEROP_THREADS: shared[INTEROP_THREADS]}


def without_proxy(environment: Mapping[str, str], hosts: Sequence[str]) -> str:
    """Returns the value of `no_grpc_proxy` with which gRPC connects to hosts without a proxy.

    Args:
      environment: the environment. Its exceptions from the proxy remain.
    """
    direct = environment.get("no_grpc_proxy") or environment.get("no_proxy")
    return ",".join([*([direct] if direct else []), *hosts])


def share_machine(processes: int) -> dict[str, str]:
    """Returns TensorFlow's settings for each of several processes that compute on this machine."""
    share = max(1, count_cores() // processes)
    # Inter-op threads also wait for other processes. With a single thread, the workers of parameter
    # servers would wait forever. TensorFlow's guide recommends at least the number of workers + 1.
    interop_threads = max(processes + 1, share)
    return {
        "TF_NUM_INTRAOP_THREADS": str(share),
        "OMP_NUM_THREADS": str(share),
        INTEROP_THREADS: str(interop_threads),
        # Without this setting, the first process takes all memory of a GPU.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


WORKER_PROCESS = "components.processes.local.process"
"""The module that a new interpreter runs. Its arguments are the process id of the parent, the
descriptor of the events, the worker's module, and the worker's name."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ProcessStart:
    """The arguments and descriptors of a worker's process. The descriptors are copied."""

    module: str
    name: str
    """The worker's name in lists of processes."""
    environment: Mapping[str, str]
    stdin: int
    """The reading end of a pipe with the payload, a line of JSON. The process group ends when all
    copies of the writing end are closed."""
    output: int
    """The descriptor of standard output and error."""
    events: int
    """The writing end of the pipe of the worker's channel."""


class ChildProcess(Protocol):
    """A process that leads a group of its own."""

    def poll(self) -> int | None:
        """Returns the status of a process that has ended, or None while it runs.

        The status is the exit status, or minus the number of the signal that ended the process.
        """

    def wait(self) -> object:
        """Returns when the process has ended."""

    def kill_group(self) -> None:
        """Kills the process and its group, if it still runs."""


class FreshProcess(subprocess.Popen[bytes]):
    """A new interpreter, which imports all modules itself. It implements `ChildProcess`."""

    def __init__(self, start: ProcessStart) -> None:
        """Starts the interpreter. The calling thread must outlive the interpreter."""
        super().__init__(
            # With -P, modules in the current folder do not hide the modules of this process.
            [
                *(sys.executable, "-P", "-m", WORKER_PROCESS),
                *(str(os.getpid()), str(start.events), start.module, start.name),
            ],
            stdin=start.stdin,
            stdout=start.output,
            stderr=subprocess.STDOUT,
            env=start.environment,
            pass_fds=[start.events],
            start_new_session=True,
        )

    def kill_group(self) -> None:
        """Kills the process and its group, if it still runs."""
        # If the process has ended, another process may have its id.
        if self.poll() is None:
            kill_group(self.pid)


def run_local_worker(module: str, parent: int, events: int) -> NoReturn:
    """Runs a worker and then ends this process. The process does not outlive its launcher.

    Args:
      events: the descriptor of the channel.
    """
    payload = sys.stdin.buffer.readline()
    end_group_with_parent(parent)
    run_worker(load_main(module), json.loads(payload), Channel(events))


def end_group_with_parent(parent: int) -> None:
    """Makes this process group end with a parent, or when the pipe of standard input is closed.

    The function must be called after standard input has been read, and before any thread starts.
    Standard input becomes /dev/null.
    """
    end_with_parent(parent)
    # The kernel's signal kills only this process and its threads.
    end_group_with_input()


def end_group_with_input() -> None:
    """Makes this process group end when the pipe of standard input is closed.

    Another process watches the pipe. The function must be called before any thread starts. Standard
    input becomes /dev/null.
    """
    watched = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if os.fork() == 0:
        _kill_group_at_end_of(watched)
    os.close(watched)


def end_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when the parent's thread that started it has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # The parent died before the line above.
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_group_at_end_of(watched: int) -> None:
    """Waits until all writing ends of a pipe are closed, then kills this process group."""
    try:
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            # If this process kept copies of pipes, they would remain open after the worker's end.
            if descriptor != watched:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        while os.read(watched, 1024):
            pass
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _, process, descriptor, name_of_module, _ = sys.argv
    run_local_worker(name_of_module, int(process), int(descriptor))
