"""Gangs of real processes: to the end, through restarts, or to the error that came first."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.processes import supervisor as supervisor_module
from components.processes.failures import OverdueError, WorkerFailedError
from components.processes.launcher import Place, WorkerSpec
from components.processes.local.launcher import LocalLauncher, run_one
from components.processes.supervisor import ClusterJob, Policy, Supervisor
from tests.support import cluster_workers
from tests.support.cluster_workers import spec, workers
from trainer_module.errors import TrainingError
from trainer_module.runtime import PROGRESS_LOGGER

pytestmark = pytest.mark.slow


def run(specs: list[WorkerSpec], **options: Any) -> list[str]:
    return Supervisor(LocalLauncher(), ClusterJob(specs, **options)).run()


def starts(folder: Path, name: str) -> list[dict[str, Any]]:
    """What each launch of a worker wrote when it began."""
    return [json.loads(line) for line in (folder / f"{name}.starts").read_text().splitlines()]


def cluster_of(start: dict[str, Any]) -> dict[str, list[str]]:
    return start["payload"]["tf_config"]["cluster"]


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "CLUSTER_GRACE_SECONDS", 0.5)


def test_gang_runs_to_its_end_and_the_chief_reports(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=PROGRESS_LOGGER)
    assert run(workers({"do": "finish"}, {"do": "finish"}, folder=tmp_path)) == []
    reports = [record for record in caplog.records if record.name == PROGRESS_LOGGER]
    assert [(r.done, r.total, r.getMessage(), r.detail) for r in reports] == [  # type: ignore[attr-defined]
        (None, None, "starts 2 processes", ""),
        (1, 2, "epoch", "of worker 0"),
        (2, 2, "epoch", "of worker 0"),
    ]
    (start,) = starts(tmp_path, "worker1")
    assert start["payload"]["tf_config"]["task"] == {"type": "worker", "index": 1}
    assert len(set(cluster_of(start)["worker"])) == 2


@pytest.mark.usefixtures("short_grace")
def test_cause_is_reported_rather_than_an_earlier_symptom(tmp_path: Path) -> None:
    message = "no column `x`\n\t [[{{node}}]]"
    gang = workers(
        {"do": "fail", "error": "UnavailableError", "message": "peer is gone"},
        {"do": "fail", "error": "ValueError", "message": message, "after": 0.2},
        {"do": "sleep"},
        folder=tmp_path,
    )
    with pytest.raises(WorkerFailedError) as caught:
        run(gang)
    assert str(caught.value) == "worker 1: ValueError: no column `x`"
    assert (caught.value.worker, caught.value.error_type) == ("worker 1", "ValueError")
    assert caught.value.error_message == message
    file, line = caught.value.frames[-1]
    assert file == cluster_workers.__file__
    assert "raise kinds" in Path(file).read_text().splitlines()[line - 1]
    assert caught.value.log_tail[-2] == "ValueError: no column `x`"


@pytest.mark.usefixtures("short_grace")
def test_error_of_a_worker_keeps_its_type(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gang = workers(
        {"do": "sleep"},
        {"do": "fail", "error": "TrainingError", "message": "training diverged."},
        folder=tmp_path,
    )
    with pytest.raises(TrainingError) as caught:
        run(gang)
    assert (type(caught.value), str(caught.value)) == (TrainingError, "training diverged.")
    assert "The last lines of worker 1:" in caplog.text
    assert len(starts(tmp_path, "worker0")) == 1


@pytest.mark.usefixtures("short_grace")
def test_killed_worker_restarts_the_gang(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gang = workers({"do": "die_until", "lives_at": 1}, {"do": "finish"}, folder=tmp_path)
    assert run(gang) == ["worker 0 was killed by SIGKILL"]
    first, second = starts(tmp_path, "worker1")
    assert first["payload"]["restarts"] == []
    assert second["payload"]["restarts"] == ["worker 0 was killed by SIGKILL"]
    assert not set(cluster_of(first)["worker"]) & set(cluster_of(second)["worker"])
    assert "worker 0 was killed by SIGKILL (out of memory?); all workers restart" in caplog.text


def test_worker_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (late,) = workers({"do": "sleep"}, folder=tmp_path)
    with pytest.raises(OverdueError, match="worker 0 took longer than"):
        run_one(replace(late, seconds=5))
    # On a busy machine it may be ended before it has written this.
    if (tmp_path / "worker0.starts").exists():
        (start,) = starts(tmp_path, "worker0")
        assert not Path(f"/proc/{start['pid']}").exists()


def test_worker_beyond_its_memory_limit_fails(tmp_path: Path) -> None:
    (large,) = workers({"do": "hold_memory"}, folder=tmp_path)
    with pytest.raises(TrainingError, match="it is too large"):
        run_one(large)


def test_workers_end_soon_after_their_chief(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "LINGER_SECONDS", 0.2)
    assert run(workers({"do": "finish"}, {"do": "sleep"}, folder=tmp_path)) == []


@pytest.mark.usefixtures("short_grace")
def test_taken_port_counts_as_no_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gang = workers({"do": "serve_on_taken_port"}, {"do": "finish"}, folder=tmp_path)
    assert run(gang, retries=0) == []
    first, second = starts(tmp_path, "worker0")
    assert not set(cluster_of(first)["worker"]) & set(cluster_of(second)["worker"])
    assert "all workers restart on other ports" in caplog.text


def test_lost_worker_is_restarted_alone_while_the_chief_goes_on(tmp_path: Path) -> None:
    gang = [
        spec(Place("chief", 0), "wait_for", tmp_path, waits_for=["worker1"]),
        spec(Place("worker", 0), "sleep", tmp_path),
        spec(Place("worker", 1), "listen", tmp_path),
        spec(Place("ps", 0), "sleep", tmp_path),
    ]
    assert run(gang, policy=Policy.COORDINATOR) == ["worker 1 was killed by SIGKILL"]
    first, second = starts(tmp_path, "worker1")
    assert cluster_of(first) == cluster_of(second)
    assert len(starts(tmp_path, "chief0")) == len(starts(tmp_path, "ps0")) == 1
