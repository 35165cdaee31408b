"""The processes of a server: several behind one socket, one that dies, and stops at any moment."""

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
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import requests

from components.serving.server import processes as server_processes
from components.serving.server import workers
from components.serving.server.options import ServeOptions
from components.serving.server.processes import Supervisor
from components.serving.server.workers import Workers, WorkerSlot
from pipeline.cli.early_signals import runs_until_stopped
from tests.support.served_trips import ROOT, Pushed
from tests.support.servers import (
    RUNNER,
    free_port,
    serve_process,
    wait_for,
    wait_until_ready,
    without_key,
)
from trainer_module.errors import ConfigError

BODY = {"instances": [{"fare": 1, "price__EUR_": 1, "area": 8, "company": "", "tags": []}]}


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
    options = "--model", pushed.serving, "--log-requests", tmp_path / "asked"

    def ask(number: int) -> None:
        for _ in range(number):
            assert requests.post(f"{url}/v1/models/trips:predict", json=BODY, timeout=30).ok

    def total(metric: str) -> float:
        text = requests.get(f"{url}/metrics", timeout=30).text
        found = re.findall(rf"^scopeline_{metric}(?:\{{.*\}})? (.*)$", text, re.MULTILINE)
        return sum(map(float, found))

    with serve_process(log, port, "--workers", "2", *options) as process:
        wait_until_ready(port, process)
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
        wait_until_ready(port, process)
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
    assert "worker 1 has died (killed by SIGKILL) and is restarted" in messages
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
    with serve_process(log, free_port(), "--workers", "2", "--model", damaged.parent) as process:
        process.wait(120)
    assert process.returncode == 2
    assert "can be served: " in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not any(Path(f"/proc/{one}").exists() for _, one in processes(log))


def test_worker_that_tells_nothing_for_long_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    together = Workers(2)
    assert (together.running, together.ready) == (0, 0)
    together.report(0, 7)
    together.report(1, None)
    assert (together.running, together.ready) == (2, 1)
    monkeypatch.setattr(workers, "_STALE_SECONDS", -1.0)
    assert (together.running, together.ready) == (0, 0)
    assert together.is_running(0)  # It has answered since it was started.


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
        supervisor._has_run = True
        supervisor._start_times = {1: 0.0}
        supervisor.start_due()
    assert supervisor._start_times[1] > time.monotonic()
    assert "worker 1 cannot be started yet: [Errno 12] Cannot allocate memory" in caplog.messages


def fail_as_some_do(
    options: ServeOptions,
    bound: socket.socket,
    place: WorkerSlot,
    failed: Connection,
) -> None:
    """A worker that is killed within what it says, or says all of it."""
    del options, bound
    if place.number == 0:
        os.write(failed.fileno(), b"\0\0\0")
        os.kill(os.getpid(), signal.SIGKILL)
    failed.send("there is nothing to serve")
    sys.exit(2)


def test_a_worker_that_is_killed_within_what_it_says_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_processes, "work", fail_as_some_do)
    with socket.socket() as bound:
        supervisor = Supervisor(ServeOptions("trips", tmp_path, workers=2), bound, str(tmp_path))
        supervisor.start_due()
        first, second = (supervisor._running[number] for number in (0, 1))
        for worker in (first, second):
            worker.process.join(60)
        supervisor._schedule_restart(0, first)
        with pytest.raises(ConfigError, match="there is nothing to serve"):
            supervisor._schedule_restart(1, second)
    assert "worker 0 has died (killed by SIGKILL) and is restarted" in caplog.messages


def test_the_parent_of_workers_imports_nothing_that_answers() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, components.serving.server.processes\n"
            "print(*{name.partition('.')[0] for name in sys.modules})",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "prometheus_client" in said
    assert not {"uvicorn", "starlette", "pyarrow", "tensorflow"} & {*said}


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RUNNER, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=without_key() | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def wait_until_caught(process: subprocess.Popen[str]) -> None:
    """Waits for the first line of the command: before it, the signal ends Python itself."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        (mask,) = (
            line.split()[1]
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
            if line.startswith("SigCgt")
        )
        if int(mask, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.005)
    raise AssertionError("it catches no SIGTERM")


def of_session(session: int) -> list[psutil.Process]:
    """Processes of a command, which has a session of its own."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def test_a_stop_at_any_moment_of_the_start_ends_a_server_well(
    pushed: Pushed, tmp_path: Path
) -> None:
    model, taxi = str(pushed.serving), str(ROOT / "configs" / "taxi_daily.yaml")
    serve = ["serve", "--model", model, "--port"]
    schedule = ["schedule", "--config", taxi, "--output", str(tmp_path)]
    # At once, among imports, while TensorFlow is imported or the model is loaded, with workers.
    moments = [
        (0.0, signal.SIGTERM, [*serve, str(free_port())]),
        (0.4, signal.SIGINT, [*serve, str(free_port())]),
        (2.0, signal.SIGTERM, [*serve, str(free_port())]),
        (2.5, signal.SIGTERM, [*serve, str(free_port()), "--workers", "2"]),
        (0.3, signal.SIGTERM, schedule),
    ]
    started = [start(*arguments) for _, _, arguments in moments]
    try:
        for process in started:
            wait_until_caught(process)
        began = time.monotonic()
        order = sorted(zip(moments, started, strict=True), key=lambda pair: pair[0][0])
        for (after, number, _), process in order:
            time.sleep(max(0.0, began + after - time.monotonic()))
            os.killpg(process.pid, number)
        for (after, number, _), process in order:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, (after, number, said)
            assert "Traceback" not in said, (after, number, said)
            # multiprocessing's tracker of resources ends once it sees that all others have.
            until = time.monotonic() + 10
            while left := of_session(process.pid):
                assert time.monotonic() < until, [one.cmdline() for one in left]
                time.sleep(0.02)
    finally:
        for process in started:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "is_server"),
    [
        ("serve --port 80", True),
        ("schedule --config x.yaml", True),
        ("schedule --once --config x.yaml", False),
        ("schedule --config x.yaml --check", False),
        ("run --output serve", False),
        ("", False),
    ],
)
def test_which_command_is_a_server(arguments: str, is_server: bool) -> None:
    assert runs_until_stopped(arguments.split()) == is_server
