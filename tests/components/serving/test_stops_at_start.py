"""Stops that come while a server starts: its end is the one that its help promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from served_trips import ROOT, Pushed
from server_process import free_port, without_key

from pipeline.cli.early_signals import runs_until_stopped

RUNNER = [sys.executable, str(ROOT / "local_runner.py")]


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
        ("--config serve --set name=x --output=o serve", True),
        ("--verbose schedule --config x.yaml", True),
        ("schedule --once --config x.yaml", False),
        ("schedule --config x.yaml --check", False),
        ("run --output serve", False),
        ("--config serve", False),
        ("", False),
    ],
)
def test_which_command_is_a_server(arguments: str, is_server: bool) -> None:
    assert runs_until_stopped(arguments.split()) == is_server
