"""A standing cluster: servers on this machine that outlive the command that starts them."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from components.processes.detached_server import MODULE, DetachedServer, await_ready
from components.processes.launcher import Cluster, ClusterTask
from components.processes.local.launcher import LocalLauncher
from components.processes.ports import answers
from trainer_module.errors import ConfigError, InternalError, TryLaterError
from trainer_module.tf_config import TFConfig

FOLDER = "cluster"
"""In the output folder: for the servers' logs and the file with their addresses."""
FILE = "cluster.json"
START_SECONDS = 300.0
"""Until every server has to be ready: a model that they import may take its time."""
END_SECONDS = 3.0
"""How long servers that were asked to end may take, before they are killed."""
_KILLED_SECONDS = 10.0
_POLL_SECONDS = 0.05
# It is reckoned from the time of boot, which moves a little when the clock is set.
_CREATED_TOLERANCE_SECONDS = 2.0

Say = Callable[[str], None]
"""Takes a line about what was done."""


class NoClusterError(ConfigError):
    """There is no cluster."""


class Server(BaseModel):
    """A process that serves."""

    type: str
    """`worker` or `ps`."""
    index: int
    pid: int
    created: float
    """When the process began, in seconds since the epoch: another may get its pid one day."""

    @property
    def name(self) -> str:
        """What messages call it: `worker 1`."""
        return ClusterTask(self.type, self.index).name

    def find_process(self) -> psutil.Process | None:
        """Its process; None if that has ended, even if another has its pid now."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.created) < _CREATED_TOLERANCE_SECONDS
        except psutil.NoSuchProcess:
            return None
        return process if is_same and _runs(process) else None


class PersistentCluster(BaseModel):
    """What cluster.json holds: all of a TF_CONFIG for whoever coordinates a training, and more."""

    cluster: Cluster
    """Addresses by task type."""
    task: dict[str, str | int]
    servers: list[Server]
    started: datetime

    def address_of(self, server: Server) -> str:
        """Where a server listens, `host:port`."""
        return self.cluster[server.type][server.index]

    def is_up(self, server: Server) -> bool:
        """Whether a server's process runs and it answers."""
        return server.find_process() is not None and answers(self.address_of(server))


def command(verb: str, folder: Path) -> str:
    """What a user types to do something with the cluster of a folder."""
    where = (
        "" if folder == Path("output") / FOLDER else f" --output {shlex.quote(str(folder.parent))}"
    )
    return f"python local_runner.py cluster {verb}{where}"


def read_cluster(folder: Path) -> PersistentCluster:
    """The cluster whose file is in a folder.

    Raises:
      NoClusterError: there is none.
      ConfigError: the file is not one that `start_cluster` wrote.
    """
    file = folder / FILE
    try:
        cluster = PersistentCluster.model_validate_json(file.read_bytes())
        for server in cluster.servers:
            cluster.address_of(server)
    except FileNotFoundError:
        raise NoClusterError(
            f"there is no cluster in {folder}; `{command('start', folder)}` starts one."
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
    tasks: list[ClusterTask],
    model: str | None,
    say: Say,
    limit: float = START_SECONDS,
) -> PersistentCluster:
    """Starts servers, and returns once all are ready; they outlive this process.

    Args:
      folder: for cluster.json and the servers' output.
      tasks: the workers and parameter servers.
      model: import path of a builder of the user's that the servers import, if any.
      say: is told how it goes.
      limit: seconds until all have to be ready.

    Raises:
      ConfigError: a cluster runs already, or the folder cannot be written.
      InternalError: a server did not start; none is left then.
    """
    with _alone(folder):
        _check_none_runs(folder, say)
        say(f"starting {', '.join(task.name for task in tasks)}")
        cluster = LocalLauncher().allocate([ClusterTask("chief", 0), *tasks])
        servers: list[DetachedServer] = []
        try:
            for task in tasks:
                servers.append(DetachedServer(task, cluster, folder, model))
            await_ready(servers, limit, say)
            standing = _describe(cluster, servers)
            _write(folder / FILE, standing)
            for server in servers:
                server.release()
        except BaseException:  # Also KeyboardInterrupt: nothing is left half started.
            for server in servers:
                server.kill()
            (folder / FILE).unlink(missing_ok=True)
            raise
    return standing


def stop_cluster(folder: Path, say: Say) -> None:
    """Ends a cluster's servers, by force where need be, and forgets the cluster.

    Args:
      folder: what it was started in.
      say: is told what became of each server.

    Raises:
      NoClusterError: there is none.
      ConfigError: its file cannot be used, or the processes are another user's.
      InternalError: a process cannot be killed.
    """
    read_cluster(folder)  # Else the lock would make the folder.
    with _alone(folder):
        servers = read_cluster(folder).servers
        found = {server.name: server.find_process() for server in servers}
        running = {name: process for name, process in found.items() if process is not None}
        forced = _end(running)
        for server in servers:
            how = "killed, as it did not stop" if server.name in forced else "stopped"
            state = how if server.name in running else "was dead already"
            say(f"{server.name}, process {server.pid}: {state}")
        (folder / FILE).unlink()


def _unusable(file: Path, found: str) -> ConfigError:
    return ConfigError(
        f"{file} is not as `cluster start` wrote it ({found}); delete it; servers of it that are "
        f"left are among those that `pgrep -af {MODULE}` shows."
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Makes the folder, and lets one command at a time change its cluster."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        lock.acquire(blocking=False)
    except Timeout:
        raise TryLaterError(
            f"another `cluster` command is at work in {folder}; wait for it to end."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}); give another folder with --output."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _check_none_runs(folder: Path, say: Say) -> None:
    try:
        cluster = read_cluster(folder)
    except NoClusterError:
        return
    running = [server for server in cluster.servers if server.find_process()]
    if running:
        raise ConfigError(
            f"a cluster is running in {folder} already ({len(running)} of {len(cluster.servers)} "
            f"servers); use it, or end it first: `{command('stop', folder)}`."
        )
    say("the servers of an earlier cluster are dead; its file is replaced")


def _describe(cluster: Cluster, servers: list[DetachedServer]) -> PersistentCluster:
    processes = [
        Server(type=s.task.type, index=s.task.index, pid=s.pid, created=s.created) for s in servers
    ]
    place = TFConfig(cluster, "chief", 0).to_json()
    return PersistentCluster(**place, servers=processes, started=datetime.now(UTC))


def _write(file: Path, cluster: PersistentCluster) -> None:
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        draft.write_text(cluster.model_dump_json(indent=2) + "\n")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _end(running: Mapping[str, psutil.Process]) -> Mapping[str, psutil.Process]:
    """Ends processes, by name; returns those that had to be killed."""
    for process in running.values():
        _signal(process, process.terminate)
    stubborn = _wait(running, END_SECONDS)
    for process in stubborn.values():
        _signal(process, process.kill)
    if left := _wait(stubborn, _KILLED_SECONDS):
        names = ", ".join(f"{name} (process {process.pid})" for name, process in left.items())
        raise InternalError(f"{names} cannot be killed: the system does not let go; try again.")
    return stubborn


def _signal(process: psutil.Process, send: Callable[[], None]) -> None:
    try:
        # psutil makes sure that the pid is still this process's.
        with contextlib.suppress(psutil.NoSuchProcess):
            send()
    except psutil.AccessDenied:
        raise ConfigError(
            f"process {process.pid} of the cluster belongs to another user, who has to stop it."
        ) from None


def _wait(running: Mapping[str, psutil.Process], limit: float) -> dict[str, psutil.Process]:
    """Those that still run when all have ended, or after `limit` seconds."""
    deadline = time.monotonic() + limit
    while True:
        left = {name: process for name, process in running.items() if _runs(process)}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)


def _runs(process: psutil.Process) -> bool:
    try:
        # Where nobody waits for a process that has ended, it stays as a zombie.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
