"""The processes of a server: several behind one socket, one that dies, and stops at any moment."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import requests

from components.serving.server import workers
from components.serving.server.workers import Workers
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


@pytest.mark.slow
def test_killed_worker_is_replaced_at_the_same_port(pushed: Pushed, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    url = f"http://127.0.0.1:{port}"
    options = "--model", pushed.serving, "--log-requests", tmp_path / "log_requests"

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

        assert wait_for(unhealthy, process) == (503, {"error": "1 of 2 workers are ready."})
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
    files = list((tmp_path / "log_requests").glob("*/*.parquet"))
    # One that is killed loses what it had not written yet.
    assert 11 <= sum(pq.read_metadata(file).num_rows for file in files) <= 41


@pytest.mark.slow
def test_workers_with_a_damaged_version_end_with_code_2(pushed: Pushed, tmp_path: Path) -> None:
    damaged, log = tmp_path / "trips" / "1", tmp_path / "log"
    shutil.copytree(pushed.version, damaged)
    (damaged / "saved_model.pb").write_bytes(b"nothing")
    with serve_process(log, free_port(), "--workers", "2", "--model", damaged.parent) as process:
        process.wait(120)
    assert process.returncode == 2
    assert "can be served: " in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not any(Path(f"/proc/{one}").exists() for _, one in processes(log))


def test_silent_worker_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    together = Workers(2)
    assert (together.running, together.ready) == (0, 0)
    together.report(0, 7)
    together.report(1, None)
    assert (together.running, together.ready) == (2, 1)
    monkeypatch.setattr(workers, "_STALE_SECONDS", -1.0)
    assert (together.running, together.ready) == (0, 0)
    assert together.is_running(0)  # It has answered since it was started.


@pytest.mark.slow
def test_parent_of_workers_imports_no_tensorflow() -> None:
    imported = subprocess.run(
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
    assert "prometheus_client" in imported
    assert not {"uvicorn", "starlette", "pyarrow", "tensorflow"} & {*imported}


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


@pytest.mark.slow
def test_stop_at_any_moment_of_the_start_exits_with_0(pushed: Pushed, tmp_path: Path) -> None:
    taxi = str(ROOT / "configs" / "taxi_daily.yaml")
    serve = ["serve", "--model", str(pushed.serving), "--workers", "2", "--port"]
    # Among imports, and while workers load the model.
    moments = [
        (0.3, signal.SIGTERM, ["schedule", "--config", taxi, "--output", str(tmp_path)]),
        (0.4, signal.SIGINT, [*serve, str(free_port())]),
        (2.5, signal.SIGTERM, [*serve, str(free_port())]),
    ]
    for after, number, arguments in moments:
        with start(*arguments) as process:
            try:
                wait_until_caught(process)
                time.sleep(after)
                os.killpg(process.pid, number)
                _, printed = process.communicate(timeout=120)
            finally:
                process.kill()
        assert process.returncode == 0, (after, number, printed)
        assert "Traceback" not in printed, (after, number, printed)


@pytest.mark.parametrize(
    ("arguments", "is_server"),
    [
        ("serve --port 80", True),
        ("schedule --config x.yaml", True),
        ("schedule --once --config x.yaml", False),
        ("run --output serve", False),
        ("", False),
    ],
)
def test_commands_that_run_until_a_stop(arguments: str, is_server: bool) -> None:
    assert runs_until_stopped(arguments.split()) == is_server
