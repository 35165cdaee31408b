"""Beam's workers as processes: they share the work, and what happens to one is said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What a run of its own has tried, as pytest has threads; its folder, and what it tells."""
    root = tmp_path_factory.mktemp("workers")
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.beam_steps", str(root)],
        # Nobody listens there: whoever asks it for the way to this machine waits for ever.
        env={**os.environ, "PYTHONPATH": path, "http_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return root, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["forked", "fresh"])
def test_two_processes_share_the_files(tried: tuple[Path, dict[str, Any]], kind: str) -> None:
    root, told = tried
    noted = [json.loads(file.read_text()) for file in (root / kind).iterdir()]
    assert sorted(file for _, file in noted) == sorted(map(str, (root / "Split-train").iterdir()))
    processes = [process for process, _ in noted]
    assert len(set(processes)) == 2
    assert told["run"] not in processes
    assert {processes.count(process) for process in processes} == {4}


def test_a_worker_that_is_killed_is_named(tried: tuple[Path, dict[str, Any]]) -> None:
    killed = tried[1]["killed"]
    assert killed["known"] == "WorkerError"
    assert "was killed by SIGKILL (out of memory?)" in killed["said"]
    assert "beam.workers: 1" in killed["said"]
    assert killed["seconds"] < 30


def test_what_a_worker_raises_is_said_as_in_the_run_itself(
    tried: tuple[Path, dict[str, Any]],
) -> None:
    refused = tried[1]["refused"]
    assert refused["known"] == "DataError"
    assert refused["said"].endswith("5.gz: row 7 is odd.")


def test_a_message_of_several_lines_is_whole(tried: tuple[Path, dict[str, Any]]) -> None:
    refused = tried[1]["refused at length"]
    assert refused["known"] == "DataError"
    assert refused["said"] == 'two lines,\nand it isn\'t "one"'


def test_an_unforeseen_error_is_placed_in_the_users_code(
    tried: tuple[Path, dict[str, Any]],
) -> None:
    broken = tried[1]["broken"]
    assert re.match(r"Beam worker \d+: ValueError: no such thing", broken["cause"])
    assert broken["files"][-1] == "beam_steps.py"


def test_one_that_fails_ends_the_others(tried: tuple[Path, dict[str, Any]]) -> None:
    abandoned = tried[1]["abandoned"]
    assert abandoned["known"] == "WorkerError"
    assert abandoned["seconds"] < 30, "the other one has 60 seconds of work"


def test_nobody_else_can_reach_the_run(tried: tuple[Path, dict[str, Any]]) -> None:
    (listening,) = {file.read_text() for file in (tried[0] / "listening").iterdir()}
    assert set(json.loads(listening)) <= {"127.0.0.1", "::1"}


def test_rows_are_counted(tried: tuple[Path, dict[str, Any]]) -> None:
    told = tried[1]
    assert told["complete"]["raised"] == "NoneType"
    assert told["lost"]["known"] == told["unwritten"]["known"] == "InternalError"
    assert "the step has read 9 of the 10 rows of" in told["lost"]["said"]
    assert "5.gz. The output of this step is discarded" in told["lost"]["said"]
    assert "the output for the split Split-train has 79 of 80 rows" in told["unwritten"]["said"]


def test_an_interrupt_leaves_nobody_behind(tried: tuple[Path, dict[str, Any]]) -> None:
    told = tried[1]
    assert told["interrupted"]["raised"] == "KeyboardInterrupt"
    assert told["interrupted"]["seconds"] < 20
    kinds = ("killed", "abandoned", "refused", "complete", "lost", "interrupted")
    assert [told[kind]["left"] for kind in kinds] == [0] * len(kinds)
