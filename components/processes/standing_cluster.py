"""A standing cluster: servers on this machine, which outlive the command that starts them."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NoReturn

import psutil
from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from components.disk import write_atomically
from components.processes.ending import POLL_SECONDS, Step, end_processes, is_running
from components.processes.launcher import TAIL_LINES, Cluster, Place
from components.processes.local.launcher import LocalLauncher
from components.processes.local.process import (
    INTEROP_THREADS,
    share_machine,
    worker_environment,
)
from components.processes.ports import answers
from trainer_module.errors import ConfigError, InternalError, TryLaterError
from trainer_module.tf_config import TFConfig
from trainer_module.typed_words import typed_program

FOLDER = "cluster"
"""The folder for the servers' logs and the file with their addresses. It is in the output folder.
"""
MODULE = "components.processes.server"
FILE = "cluster.json"
START_SECONDS = 300.0
"""The timeout for all servers to be ready. A server may have to import a model first."""
END_SECONDS = 3.0
"""The grace period of servers before they are killed."""
_KILLED_SECONDS = 10.0
# psutil computes a creation time from the boot time, which changes slightly when the clock is set.
_CREATED_TOLERANCE_SECONDS = 2.0

Report = Callable[[str], None]
"""A function that reports a line about a step."""


class NoClusterError(ConfigError):
    """An error for a folder without a cluster."""


class Server(BaseModel):
    """A server process of the cluster."""

    type: str
    """`worker` or `ps`."""
    index: int
    pid: int
    created: float
    """The time at which the process began, in seconds since the epoch. Another process that reuses
    the pid has another time."""

    @property
    def name(self) -> str:
        """The server's name in messages, such as `worker 1`."""
        return Place(self.type, self.index).name

    def find_process(self) -> psutil.Process | None:
        """Returns the server's process, or None if the process has ended.

        Another process with the same pid is not returned.
        """
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.created) < _CREATED_TOLERANCE_SECONDS
        except psutil.NoSuchProcess:
            return None
        return process if is_same and is_running(process) else None


class StandingCluster(BaseModel):
    """The content of cluster.json: the TF_CONFIG of a training's coordinator, and the servers."""

    cluster: Cluster
    """The addresses by type of worker."""
    task: dict[str, str | int]
    servers: list[Server]
    started: datetime

    def address_of(self, server: Server) -> str:
        """Returns the address of a server, `host:port`."""
        return self.cluster[server.type][server.index]

    def is_up(self, server: Server) -> bool:
        """Returns whether a server's process runs and accepts connections."""
        return server.find_process() is not None and answers(self.address_of(server))


def command(verb: str, folder: Path) -> str:
    """Returns a command line such as `scopeline cluster stop` for the cluster of a folder."""
    is_default = folder == Path("output") / FOLDER
    option = "" if is_default else f" --output {shlex.quote(str(folder.parent))}"
    return f"{typed_program()} cluster {verb}{option}"


def read_cluster(folder: Path) -> StandingCluster:
    """Returns the cluster whose file is in a folder.

    Raises:
      NoClusterError: the file does not exist.
      ConfigError: the file cannot be read, or was not written by `start_cluster`.
    """
    file = folder / FILE
    try:
        cluster = StandingCluster.model_validate_json(file.read_bytes())
        for server in cluster.servers:
            cluster.address_of(server)
    except FileNotFoundError:
        raise NoClusterError(
            f"there is no cluster in {folder}; start a cluster with `{command('start', folder)}`."
        ) from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}).") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise _unusable(file, ": ".join([*map(str, first["loc"]), first["msg"]])) from None
    except LookupError:
        raise _unusable(file, f"{server.name} has no address") from None
    return cluster


def start_cluster(
    folder: Path,
    places: list[Place],
    model: str | None,
    report: Report,
) -> StandingCluster:
    """Starts servers, and returns when all servers are ready. The servers outlive this process.

    Args:
      folder: the folder for cluster.json and the servers' output.
      model: the import path of a user's builder that the servers import, or None.

    Raises:
      ConfigError: a cluster is running already, or the folder cannot be written.
      InternalError: a server did not start. All other servers have been ended.
    """
    with _locked(folder):
        _check_none_runs(folder, report)
        report(f"starting {', '.join(place.name for place in places)}")
        addresses = LocalLauncher().allocate([Place("chief", 0), *places])
        started: dict[Place, subprocess.Popen[bytes]] = {}
        try:
            for place in places:
                started[place] = _start(place, addresses, folder, model)
            _await_ready(started, addresses, folder, report)
            servers = [
                Server(type=place.type, index=place.index, pid=p.pid, created=_created(p.pid))
                for place, p in started.items()
            ]
            place_of_chief = TFConfig(addresses, "chief", 0).to_json()
            cluster = StandingCluster(**place_of_chief, servers=servers, started=datetime.now(UTC))
            write_atomically(folder / FILE, cluster.model_dump_json(indent=2) + "\n")
            for process in started.values():
                _release(process)
        except BaseException:  # After any error, including KeyboardInterrupt, no server is left.
            for process in started.values():
                process.kill()
                process.wait()
                with contextlib.suppress(BrokenPipeError):
                    _stdin(process).close()
            (folder / FILE).unlink(missing_ok=True)
            raise
    return cluster


def stop_cluster(folder: Path, report: Report) -> None:
    """Ends a cluster's servers, with SIGKILL if necessary, and deletes the cluster's file.

    Raises:
      NoClusterError: the folder contains no cluster.
      ConfigError: the file cannot be used, or the processes belong to another user.
      InternalError: a process cannot be killed.
    """
    read_cluster(folder)  # Without this call the lock would create the folder.
    with _locked(folder):
        servers = read_cluster(folder).servers
        processes = {server.name: server.find_process() for server in servers}
        running = {name: process for name, process in processes.items() if process is not None}
        killed = _end(running)
        for server in servers:
            if server.name not in running:
                state = "had ended already"
            elif server.name in killed:
                state = "killed, as it did not end in time"
            else:
                state = "stopped"
            report(f"{server.name}, process {server.pid}: {state}")
        (folder / FILE).unlink()


def _unusable(file: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"{file} was not written by `cluster start` ({problem}); delete this file; `pgrep -af"
        f" {MODULE}` lists the servers that still run."
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Creates the folder, and locks its cluster against other commands in a `with` block."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        lock.acquire(blocking=False)
    except Timeout:
        raise TryLaterError(
            f"another `cluster` command is running in {folder}; wait until that command has ended."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}); give another folder with --output."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _check_none_runs(folder: Path, report: Report) -> None:
    try:
        cluster = read_cluster(folder)
    except NoClusterError:
        return
    running = [server for server in cluster.servers if server.find_process()]
    if running:
        raise ConfigError(
            f"a cluster is running in {folder} already ({len(running)} of {len(cluster.servers)} "
            f"servers); use this cluster, or stop it first: `{command('stop', folder)}`."
        )
    report("the servers of an earlier cluster have ended; replacing its file")


def _end(running: Mapping[str, psutil.Process]) -> list[str]:
    """Ends the processes of servers.

    Returns:
      The names of the servers whose processes had to be killed.
    """
    steps = Step(signal.SIGTERM, END_SECONDS), Step(signal.SIGKILL, _KILLED_SECONDS)
    try:
        killed, remaining = end_processes(list(running.values()), steps)
    except psutil.AccessDenied as error:
        raise ConfigError(
            f"process {error.pid} of the cluster belongs to another user, who must stop it."
        ) from None
    names = {process.pid: name for name, process in running.items()}
    if remaining:
        survivors = ", ".join(f"{names[p.pid]} (process {p.pid})" for p in remaining)
        raise InternalError(f"still running after SIGKILL: {survivors}; repeat the command.")
    return [names[process.pid] for process in killed]


def _start(
    place: Place, addresses: Cluster, folder: Path, model: str | None
) -> subprocess.Popen[bytes]:
    """Starts a server, which continues after Ctrl-C and after the end of the terminal.

    Until the server is released, it ends if this process ends or is killed.
    """
    tf_config = json.dumps(TFConfig(addresses, place.type, place.index).to_json())
    workers = len(addresses["worker"])
    shared = share_machine(workers)
    # The user's number of inter-op threads is ignored, as too few threads would block the server.
    environment = shared | worker_environment(workers) | {INTEROP_THREADS: shared[INTEROP_THREADS]}
    with _log(folder, place).open("wb") as output:
        return subprocess.Popen(
            # With -P, modules in the current folder do not hide the modules of this process.
            [sys.executable, "-P", "-m", MODULE, tf_config, *([model] if model else [])],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _release(process: subprocess.Popen[bytes]) -> None:
    """Releases a server, so that the server outlives this process."""
    # A server may have died since it was ready. `cluster status` then reports it.
    with contextlib.suppress(BrokenPipeError), _stdin(process) as stdin:
        stdin.write(b".")


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None  # noqa: S101 - for the type checker
    return process.stdin


def _created(pid: int) -> float:
    return psutil.Process(pid).create_time()


def _log(folder: Path, place: Place) -> Path:
    return folder / f"{place.name.replace(' ', '-')}.log"


def _await_ready(
    started: Mapping[Place, subprocess.Popen[bytes]],
    addresses: Cluster,
    folder: Path,
    report: Report,
) -> None:
    """Waits until all servers accept connections.

    Raises:
      InternalError: a server ended, or was not ready in time. The message has the end of its log.
    """
    start, waiting = time.monotonic(), list(started)

    def fail(place: Place, problem: str) -> NoReturn:
        with _log(folder, place).open(errors="replace") as file:
            tail = "".join(deque(file, TAIL_LINES)).rstrip()
        raise InternalError(f"{place.name} {problem}; the end of {_log(folder, place)}:\n{tail}")

    while waiting:
        time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - start
        for place, process in started.items():
            status = process.poll()
            if status is not None:
                exit_reason = f"by signal {-status}" if status < 0 else f"with exit status {status}"
                fail(place, f"ended early, {exit_reason}")
        for place in [*waiting]:
            address = addresses[place.type][place.index]
            if answers(address):
                waiting.remove(place)
                report(f"{place.name} is ready at {address} ({seconds:.1f} s)")
        if waiting and seconds > START_SECONDS:
            fail(waiting[0], f"was not ready within {START_SECONDS:g} s")
