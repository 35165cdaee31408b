"""Files of standing clusters, good, stale and broken, and the processes that they name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from components.processes import standing_cluster
from components.processes.ending import is_running
from components.processes.launcher import Place
from components.processes.standing_cluster import (
    FILE,
    NoClusterError,
    command,
    read_cluster,
    start_cluster,
    stop_cluster,
)
from trainer_module.errors import ConfigError, InternalError
from trainer_module.tf_config import read_tf_config

TASKS = [Place("worker", 0), Place("ps", 0)]
_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
# Stops for good once it has started as many servers as its second argument says.
_STARTER = """
import subprocess, sys, time
from pathlib import Path
from components.processes.launcher import Place
from components.processes.standing_cluster import start_cluster

class Popen(subprocess.Popen):
    left = int(sys.argv[2])
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        Popen.left -= 1
        if not Popen.left:
            print("started", flush=True)
            time.sleep(60)

subprocess.Popen = Popen
start_cluster(Path(sys.argv[1]), [Place("worker", 0), Place("ps", 0)], None, lambda said: None)
"""

Process = subprocess.Popen[bytes]


@pytest.fixture
def process() -> Iterator[Process]:
    """A process that ends when it is asked to."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def write(folder: Path, process: Process, created_before: float = 0.0) -> None:
    """Writes the file of a cluster whose only server is a process."""
    created = psutil.Process(process.pid).create_time() - created_before
    cluster = {
        "cluster": {"chief": ["localhost:1"], "worker": ["localhost:2"], "ps": ["localhost:3"]},
        "task": {"type": "chief", "index": 0},
        "servers": [{"type": "worker", "index": 0, "pid": process.pid, "created": created}],
        "started": "2026-01-01T00:00:00Z",
    }
    (folder / FILE).write_text(json.dumps(cluster))


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_no_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    for what in (lambda: read_cluster(folder), lambda: stop_cluster(folder, print)):
        with pytest.raises(NoClusterError) as caught:
            what()
        assert str(caught.value) == (
            f"there is no cluster in {folder}; start a cluster with `scopeline cluster start"
            f" --output {tmp_path}`."
        )
    assert not folder.exists()


def test_command_names_the_output_folder_where_it_has_to() -> None:
    assert command("stop", Path("output/cluster")) == "scopeline cluster stop"
    assert command("stop", Path("my runs/cluster")).endswith(" stop --output 'my runs'")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        ("[1]", "Input should be an object"),
        ('{"cluster": {}, "task": {}, "servers": []}', "started: Field required"),
        (
            '{"cluster": {"worker": []}, "task": {}, "started": "2026-01-01T00:00:00Z", "servers": '
            '[{"type": "worker", "index": 0, "pid": 1, "created": 1}]}',
            "worker 0 has no address",
        ),
    ],
)
def test_file_that_is_not_a_clusters_is_left_alone(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / FILE).write_text(text)
    for what in (
        lambda: read_cluster(tmp_path),
        lambda: stop_cluster(tmp_path, print),
        lambda: start_cluster(tmp_path, TASKS, None, print),
    ):
        with pytest.raises(ConfigError) as caught:
            what()
        file = tmp_path / FILE
        assert str(caught.value) == (
            f"{file} was not written by `cluster start` ({found}); delete this file; `pgrep -af"
            " components.processes.server` lists the servers that still run."
        )
    assert (tmp_path / FILE).read_text() == text


def test_process_is_found_by_pid_and_time(tmp_path: Path, process: Process) -> None:
    write(tmp_path, process)
    cluster = read_cluster(tmp_path)
    (server,) = cluster.servers
    found = server.find_process()
    assert found is not None
    assert found.pid == process.pid
    assert not cluster.is_up(server)  # Nothing answers at its address.
    process.kill()
    # It was not waited for, and stays as a zombie.
    wait_until(lambda: server.find_process() is None)
    process.wait()
    assert server.find_process() is None


def test_process_that_has_the_pid_of_a_dead_server_is_left_alone(
    tmp_path: Path, process: Process
) -> None:
    write(tmp_path, process, created_before=60.0)
    said: list[str] = []
    stop_cluster(tmp_path, said.append)
    assert said == [f"worker 0, process {process.pid}: had ended already"]
    assert not (tmp_path / FILE).exists()
    assert process.poll() is None


def test_stop(tmp_path: Path, process: Process) -> None:
    write(tmp_path, process)
    said: list[str] = []
    stop_cluster(tmp_path, said.append)
    assert said == [f"worker 0, process {process.pid}: stopped"]
    assert process.wait(1) == -signal.SIGTERM
    assert not (tmp_path / FILE).exists()


def test_server_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == b"ready\n"
        write(tmp_path, stubborn)
        said: list[str] = []
        stop_cluster(tmp_path, said.append)
    assert said == [f"worker 0, process {stubborn.pid}: killed, as it did not end in time"]
    assert stubborn.returncode == -signal.SIGKILL


def test_start_is_refused_while_a_cluster_runs(tmp_path: Path, process: Process) -> None:
    write(tmp_path, process)
    before = (tmp_path / FILE).read_text()
    with pytest.raises(ConfigError, match=r"^a cluster is running in .* \(1 of 1 servers\); use "):
        start_cluster(tmp_path, TASKS, None, print)
    assert (tmp_path / FILE).read_text() == before


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / "lock"),
        pytest.raises(ConfigError, match=r"^another `cluster` command is running in "),
    ):
        start_cluster(tmp_path, TASKS, None, print)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written \(Not a directory\); give another"):
        start_cluster(tmp_path / "file" / "cluster", TASKS, None, print)


def test_stale_file_is_replaced_and_servers_that_fail_leave_nothing(
    tmp_path: Path, process: Process
) -> None:
    write(tmp_path, process, created_before=60.0)
    said: list[str] = []
    before = psutil.Process().children()
    with pytest.raises(InternalError) as caught:
        start_cluster(tmp_path, TASKS, "nowhere.build_model", said.append)
    assert said == [
        "the servers of an earlier cluster have ended; replacing its file",
        "starting worker 0, parameter server 0",
    ]
    name, _, rest = str(caught.value).partition(" ended early, with exit status 1; ")
    log = tmp_path / f"{name.replace(' ', '-')}.log"
    assert rest == (
        f"the end of {log}:\nmodel 'nowhere.build_model': cannot import 'nowhere': "
        "No module named 'nowhere'."
    )
    assert not (tmp_path / FILE).exists()
    assert psutil.Process().children() == before


def test_server_that_is_not_ready_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_cluster, "START_SECONDS", 0)
    before = psutil.Process().children()
    with pytest.raises(InternalError, match=r"^worker 0 was not ready within 0 s; the end of "):
        start_cluster(tmp_path, TASKS, None, print)
    assert psutil.Process().children() == before


@pytest.mark.parametrize("started", range(1, len(TASKS) + 1))
def test_servers_end_with_a_start_that_is_killed(tmp_path: Path, started: int) -> None:
    start = [sys.executable, "-c", _STARTER, str(tmp_path), str(started)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(start, env=environment, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        servers = psutil.Process(starter.pid).children()
        starter.kill()
    assert len(servers) == started
    try:
        wait_until(lambda: not any(map(is_running, servers)))
    finally:
        for server in filter(is_running, servers):
            server.kill()
    assert not (tmp_path / FILE).exists()


@pytest.mark.slow
def test_file_is_there_once_all_servers_are_ready(tmp_path: Path) -> None:
    """And stopping finds what the file names."""
    said: list[tuple[str, bool]] = []
    cluster = start_cluster(
        tmp_path, TASKS, None, lambda line: said.append((line, (tmp_path / FILE).exists()))
    )
    try:
        assert len(said) == 1 + len(TASKS)
        assert not any(is_written for _, is_written in said)
        assert read_cluster(tmp_path) == cluster
        assert all(map(cluster.is_up, cluster.servers))
    finally:
        stop_cluster(tmp_path, print)
    assert not any(server.find_process() for server in cluster.servers)


def test_file_is_what_tf_config_holds(tmp_path: Path, process: Process) -> None:
    write(tmp_path, process)
    config = read_tf_config({"TF_CONFIG": (tmp_path / FILE).read_text()})
    assert config is not None
    assert (config.address, config.is_chief, config.workers) == ("localhost:1", True, 1)
