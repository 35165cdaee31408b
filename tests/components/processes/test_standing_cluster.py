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

from components.processes.ending import is_running
from components.processes.launcher import Place
from components.processes.standing_cluster import (
    FILE,
    NoClusterError,
    read_cluster,
    start_cluster,
    stop_cluster,
)
from trainer_module.errors import ConfigError, InternalError

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
start_cluster(Path(sys.argv[1]), [Place("worker", 0), Place("ps", 0)], None, lambda lines: None)
"""

Process = subprocess.Popen[bytes]


@pytest.fixture
def process() -> Iterator[Process]:
    """A process that ends by SIGTERM."""
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


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_missing_cluster_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    for what in (lambda: read_cluster(folder), lambda: stop_cluster(folder, print)):
        with pytest.raises(NoClusterError) as caught:
            what()
        assert str(folder) in str(caught.value)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        ("[1]", "Input should be an object"),
        (
            '{"cluster": {"worker": []}, "task": {}, "started": "2026-01-01T00:00:00Z", "servers": '
            '[{"type": "worker", "index": 0, "pid": 1, "created": 1}]}',
            "worker 0 has no address",
        ),
    ],
)
def test_broken_cluster_file_is_left_alone(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / FILE).write_text(text)
    for what in (
        lambda: read_cluster(tmp_path),
        lambda: stop_cluster(tmp_path, print),
        lambda: start_cluster(tmp_path, TASKS, None, print),
    ):
        with pytest.raises(ConfigError) as caught:
            what()
        assert str(tmp_path / FILE) in str(caught.value)
        assert found in str(caught.value)
    assert (tmp_path / FILE).read_text() == text


@pytest.mark.slow
def test_process_that_has_the_pid_of_a_dead_server_is_left_alone(
    tmp_path: Path, process: Process
) -> None:
    write(tmp_path, process, created_before=60.0)
    lines: list[str] = []
    stop_cluster(tmp_path, lines.append)
    assert lines == [f"worker 0, process {process.pid}: had ended already"]
    assert not (tmp_path / FILE).exists()
    assert process.poll() is None


def test_stop_ends_the_server_and_deletes_the_file(tmp_path: Path, process: Process) -> None:
    write(tmp_path, process)
    lines: list[str] = []
    stop_cluster(tmp_path, lines.append)
    assert lines == [f"worker 0, process {process.pid}: stopped"]
    assert process.wait(1) == -signal.SIGTERM
    assert not (tmp_path / FILE).exists()


def test_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == b"ready\n"
        write(tmp_path, stubborn)
        lines: list[str] = []
        stop_cluster(tmp_path, lines.append)
    assert lines == [f"worker 0, process {stubborn.pid}: killed, as it did not end in time"]
    assert stubborn.returncode == -signal.SIGKILL


def test_start_is_refused_while_a_cluster_runs(tmp_path: Path, process: Process) -> None:
    write(tmp_path, process)
    before = (tmp_path / FILE).read_text()
    with pytest.raises(ConfigError, match=r"1 of 1 servers"):
        start_cluster(tmp_path, TASKS, None, print)
    assert (tmp_path / FILE).read_text() == before


@pytest.mark.slow
def test_stale_file_is_replaced_and_servers_that_fail_leave_nothing(
    tmp_path: Path, process: Process
) -> None:
    write(tmp_path, process, created_before=60.0)
    lines: list[str] = []
    before = psutil.Process().children()
    with pytest.raises(InternalError) as caught:
        start_cluster(tmp_path, TASKS, "nowhere.build_model", lines.append)
    assert len(lines) == 2
    assert "nowhere.build_model" in str(caught.value)
    assert not (tmp_path / FILE).exists()
    assert psutil.Process().children() == before


@pytest.mark.slow
def test_servers_end_with_a_start_that_is_killed(tmp_path: Path) -> None:
    started = len(TASKS)
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
def test_file_appears_once_all_servers_are_ready(tmp_path: Path) -> None:
    """And stopping finds what the file names."""
    lines: list[tuple[str, bool]] = []
    cluster = start_cluster(
        tmp_path, TASKS, None, lambda line: lines.append((line, (tmp_path / FILE).exists()))
    )
    try:
        assert len(lines) == 1 + len(TASKS)
        assert not any(is_written for _, is_written in lines)
        assert read_cluster(tmp_path) == cluster
        assert all(map(cluster.is_up, cluster.servers))
    finally:
        stop_cluster(tmp_path, print)
    assert not any(server.find_process() for server in cluster.servers)
