"""`serve --workers`: several processes behind one socket, of which one dies."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import requests
from running_server import running
from served_trips import ROOT, Pushed
from server_process import free_port, wait_for, without_key

from components.serving.server import app, workers
from components.serving.server.metrics import Metrics
from components.serving.server.options import ServeOptions
from components.serving.server.processes import Supervisor

BODY = {"instances": [{"fare": 1, "price__EUR_": 1, "area": 8, "company": "", "tags": []}]}
COMMAND = [sys.executable, str(ROOT / "local_runner.py"), "serve", "--workers", "2", "--port"]


@contextmanager
def serving(log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, *options],
        stderr=log.open("w"),
        stdout=subprocess.DEVNULL,
        env=without_key(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


@contextmanager
def begun_request(port: int) -> Iterator[tuple[socket.socket, bytes]]:
    """A request whose body a worker waits for."""
    body = json.dumps(BODY).encode()
    head = f"POST /v1/models/trips:predict HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as asking:
        asking.sendall(f"{head}expect: 100-continue\r\n\r\n".encode())
        assert b" 100 Continue" in asking.recv(4096)
        yield asking, body


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def processes(log: Path) -> list[tuple[int, int]]:
    """The number and the process of each worker that was started."""
    started = re.compile(r"worker (\d) is started \(process (\d+)\)")
    found = [started.fullmatch(line["message"]) for line in lines_of(log)]
    return [(int(match[1]), int(match[2])) for match in found if match]


def test_workers_answer_at_one_port_and_one_that_dies_is_started_again(
    pushed: Pushed, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "log"
    url = f"http://127.0.0.1:{port}"
    options = [str(port), "--model", str(pushed.serving), "--log-requests", str(tmp_path / "asked")]

    def ask(number: int) -> None:
        for _ in range(number):
            assert requests.post(f"{url}/v1/models/trips:predict", json=BODY, timeout=30).ok

    def total(metric: str) -> float:
        text = requests.get(f"{url}/metrics", timeout=30).text
        found = re.findall(rf"^scopeline_{metric}(?:\{{.*\}})? (.*)$", text, re.MULTILINE)
        return sum(map(float, found))

    with serving(log, *options) as process:
        wait_for(lambda: requests.get(f"{url}/v2/health/ready", timeout=10).ok, process)
        assert requests.get(f"{url}/healthz", timeout=10).ok
        ask(30)
        # Whichever worker answers, it counts for both.
        assert [total("predictions_total") for _ in range(6)] == [30] * 6
        assert total("serving_version") == int(pushed.version.name)

        first = dict(processes(log))
        os.kill(first[1], signal.SIGKILL)

        def unhealthy() -> tuple[int, Any] | None:
            health = requests.get(f"{url}/healthz", timeout=10)
            return None if health.ok else (health.status_code, health.json())

        said = {"error": "1 of 2 workers are ready."}
        assert wait_for(unhealthy, process) == (503, said)
        ask(5)
        wait_for(lambda: requests.get(f"{url}/v2/health/ready", timeout=10).ok, process)
        ask(5)
        assert total("predictions_total") == 40
        with begun_request(port) as (asking, body):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            os.killpg(process.pid, signal.SIGINT)  # As Ctrl-C, which is for the parent alone.
            asking.sendall(body)
            assert b" 200 OK" in asking.recv(4096)
        process.wait(60)
    messages = [line["message"] for line in lines_of(log)]
    assert process.returncode == 0, messages
    assert "worker 1 has died (by SIGKILL): it is started again" in messages
    assert [number for number, _ in processes(log)] == [0, 1, 1]
    assert not any(Path(f"/proc/{one}").exists() for _, one in processes(log))
    assert {line.get("worker") for line in lines_of(log)} == {None, 0, 1}
    files = list((tmp_path / "asked").glob("*/*.parquet"))
    # One that is killed loses what it had not written yet.
    assert 11 <= sum(pq.read_metadata(file).num_rows for file in files) <= 41


def test_workers_that_have_nothing_to_serve_end_the_command(pushed: Pushed, tmp_path: Path) -> None:
    damaged, log = tmp_path / "trips" / "1", tmp_path / "log"
    shutil.copytree(pushed.version, damaged)
    (damaged / "saved_model.pb").write_bytes(b"nothing")
    with serving(log, str(free_port()), "--model", str(damaged.parent)) as process:
        process.wait(120)
    assert process.returncode == 2
    assert "can be served: " in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not any(Path(f"/proc/{one}").exists() for _, one in processes(log))


def test_worker_that_tells_nothing_for_long_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    together = workers.Workers(2)
    assert (together.up, together.ready) == (0, 0)
    together.tell(0, 7)
    together.tell(1, None)
    assert (together.up, together.ready) == (2, 1)
    monkeypatch.setattr(workers, "_STALE_SECONDS", -1.0)
    assert (together.up, together.ready) == (0, 0)
    assert together.is_up(0)  # It has answered since it was started.


def test_worker_goes_on_to_tell_whatever_fails(
    pushed: Pushed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail_twice(metrics: Metrics) -> None:
        calls.append(metrics)
        if len(calls) < 3:
            raise OSError("the disk of the metrics is full")

    monkeypatch.setattr(Metrics, "refresh", fail_twice)
    monkeypatch.setattr(app, "_TELL_SECONDS", 0.01)
    place = workers.WorkerPlace(workers.Workers(1), 0)
    with running(ServeOptions("trips", pushed.serving), place=place) as server:
        until = time.monotonic() + 30
        while len(calls) < 10:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert requests.get(f"{server}/v2/health/ready", timeout=30).ok
    logged = [line for line in caplog.messages if "is tried again" in line]
    assert logged == ["to tell the other workers of this one failed, and is tried again"]


def test_worker_that_cannot_be_started_again_does_not_end_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(SpawnProcess, "start", refuse)
    with socket.socket() as bound:
        supervisor = Supervisor(ServeOptions("trips", tmp_path, workers=2), bound, str(tmp_path))
        with pytest.raises(OSError, match="Cannot allocate"):
            supervisor.start_due()
        supervisor._have_answered = True
        supervisor._due = {1: 0.0}
        supervisor.start_due()
    assert supervisor._due[1] > time.monotonic()
    assert "worker 1 cannot be started yet: [Errno 12] Cannot allocate memory" in caplog.messages
