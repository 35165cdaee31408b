"""Processes get SIGTERM, and SIGKILL if they ignore it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from components.processes.ending import Ending, Step, end, end_processes, is_running

SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL)
Started = tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Started]:
    """A process that ends by SIGTERM, and one that ignores it."""
    scripts = "echo; exec sleep 60", "trap '' TERM; echo; while :; do sleep 0.1; done"
    both = [subprocess.Popen(["sh", "-c", text], stdout=subprocess.PIPE) for text in scripts]
    for process in both:
        assert process.stdout is not None
        process.stdout.readline()
    yield both[0], both[1]
    for process in both:
        with process:
            process.kill()


def test_process_that_ignores_sigterm_is_killed(started: Started) -> None:
    willing, stubborn = started
    processes = [psutil.Process(process.pid) for process in started]
    killed, left = end_processes(processes, [Step(number, 0.2) for number in SIGNALS])
    assert ([process.pid for process in killed], left) == ([stubborn.pid], [])
    assert (willing.wait(1), stubborn.wait(1)) == (-signal.SIGTERM, -signal.SIGKILL)
    assert not any(map(is_running, processes))


def test_process_that_survives_all_signals_is_returned(started: Started) -> None:
    stubborn = psutil.Process(started[1].pid)
    assert end_processes([stubborn], [Step(signal.SIGTERM, 0.1)]) == ([], [stubborn])


def test_each_signal_has_its_time() -> None:
    sent: list[signal.Signals] = []

    def send(number: signal.Signals) -> bool:
        sent.append(number)
        return True

    ending = Ending(send, [Step(signal.SIGTERM), Step(signal.SIGKILL)])
    assert [ending.advance(), ending.advance(), sent] == [True, True, [signal.SIGTERM]]
    assert not end(send, lambda: False, [Step(signal.SIGKILL, 0)])
    assert sent == [signal.SIGTERM, signal.SIGKILL]


def test_no_signal_is_sent_to_a_process_that_is_gone() -> None:
    sent: list[signal.Signals] = []
    steps = [Step(number, 60) for number in SIGNALS]
    assert not end(lambda number: bool(sent.append(number)), lambda: False, steps)
    assert sent == [signal.SIGTERM]
