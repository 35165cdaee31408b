"""Beam's workers as processes: they share the files, and the end of each is known."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

Found = tuple[Path, dict[str, Any]]


def run_steps(root: Path, *arguments: str) -> Found:
    """Runs the steps in a process of their own, as pytest has threads."""
    done = warm.run(
        [sys.executable, "-m", "tests.support.beam_steps", str(root), *arguments],
        # Nobody listens there: whoever asks it for the way to this machine waits for ever.
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "http_proxy": "http://127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return root, json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The folder and the findings of a run whose workers are forks."""
    return run_steps(tmp_path_factory.mktemp("workers"))


def check_shares(found: Found, kind: str) -> None:
    root, findings = found
    noted = [json.loads(file.read_text()) for file in (root / kind).iterdir()]
    assert sorted(file for _, file in noted) == sorted(map(str, (root / "Split-train").iterdir()))
    processes = [process for process, _ in noted]
    assert findings["run"] not in processes
    assert sorted(processes.count(process) for process in set(processes)) == [4, 4]


def test_two_forked_processes_share_the_files(forked: Found) -> None:
    check_shares(forked, "forked")


@pytest.mark.slow
def test_two_fresh_processes_share_the_files(tmp_path: Path) -> None:
    check_shares(run_steps(tmp_path, "fresh"), "fresh")


def test_killed_worker_is_named(forked: Found) -> None:
    killed = forked[1]["killed"]
    assert killed["known"] == "WorkerError"
    assert "SIGKILL" in killed["message"]
    assert "beam.workers: 1" in killed["message"]


def test_error_of_a_worker_is_the_error_of_the_run(forked: Found) -> None:
    refused, broken = forked[1]["refused"], forked[1]["broken"]
    assert refused["known"] == "DataError"
    assert refused["message"].endswith("5.gz: row 7 is odd.")
    assert re.match(r"Beam worker \d+: ValueError: no such thing", broken["cause"])
    assert broken["files"][-1] == "beam_steps.py"


def test_run_listens_on_the_loopback_alone(forked: Found) -> None:
    (listening,) = {file.read_text() for file in (forked[0] / "listening").iterdir()}
    assert set(json.loads(listening)) <= {"127.0.0.1", "::1"}


def test_lost_rows_fail_the_step(forked: Found) -> None:
    findings = forked[1]
    assert findings["complete"]["raised"] == "NoneType"
    assert findings["lost"]["known"] == findings["unwritten"]["known"] == "InternalError"
    assert "9 of the 10 rows" in findings["lost"]["message"]
    assert "79 of 80 rows" in findings["unwritten"]["message"]


def test_no_process_is_left_after_an_error_or_interrupt(forked: Found) -> None:
    findings = forked[1]
    assert findings["interrupted"]["raised"] == "KeyboardInterrupt"
    kinds = ("killed", "refused", "complete", "lost", "interrupted")
    assert [findings[kind]["left"] for kind in kinds] == [0] * len(kinds)
