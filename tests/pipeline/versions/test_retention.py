"""Deletions by `schedule.keep`: chosen, announced, and finished after a kill."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from components.pusher.versions import list_versions
from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.records.event_log import EventKind
from pipeline.versions.retention import Retention
from pipeline.versions.withdrawal import withdraw
from tests.support.pipeline_service import DIGITS, Service


def keeping(keep: str = "") -> PipelineConfig:
    return load_config(DIGITS, [f"schedule={{cron: 0 3 * * *, {keep}}}"])


def retention(service: Service, config: PipelineConfig) -> Retention:
    kept = config.schedule, config.drift, config.metadata
    return Retention(*kept, service.layout, service.event_log)


def apply(service: Service, config: PipelineConfig) -> list[str]:
    return retention(service, config).apply()


def versions(service: Service) -> list[int]:
    return [int(path.name) for path in list_versions(Path(service.layout.serving))]


def make_runs(service: Service, number: int) -> list[Path]:
    """Runs that left a log each, the oldest first."""
    roots = [service.layout.run(f"run-{n:02}").root for n in range(number)]
    for age, root in enumerate(reversed(roots)):
        root.mkdir(parents=True)
        (root / "run.log").write_text("it said something")
        then = datetime(2026, 1, 5, tzinfo=UTC).timestamp() - age
        os.utime(root, (then, then))
    return roots


def test_withdrawn_versions_do_not_count_and_do_not_stay(service: Service) -> None:
    numbers = [service.push(content) for content in "abcdef"]
    for number in (numbers[1], numbers[3]):
        withdraw(service.config, service.layout, service.event_log, number, "bad labels")
    # Two are newer than the fourth, so that it stays as long as a good one would.
    apply(service, keeping("keep: {versions: 3}"))
    assert versions(service) == [numbers[2], numbers[3], numbers[4], numbers[5]]
    event = service.event_log.last(EventKind.DELETED)
    assert event is not None
    assert [found["version"] for found in event.details["lineage"]] == numbers[:2]
    _, bad = event.details["lineage"]
    assert (bad["withdrawn"], bad["reason"], bad["run"]) == (True, "bad labels", "a-run")
    assert bad["model"].endswith("/b")
    service.push("g")
    apply(service, keeping("keep: {versions: 3}"))
    assert versions(service) == [*numbers[4:], versions(service)[-1]]


def test_versions_of_another_pipeline_in_the_same_folder_stay(tmp_path: Path) -> None:
    shared = f"push.directory={tmp_path / 'serving'}"
    one, other = (Service(tmp_path / name, [shared]) for name in ("one", "other"))
    of_other = [other.push(content) for content in "xyz"]
    unrecorded, *recorded = (one.push(content, recorded=content != "a") for content in "abc")
    of_other.append(other.push("w"))  # So that nothing of the first one serves.
    config = load_config(DIGITS, [shared, "schedule={cron: 0 3 * * *, keep: {versions: 1}}"])
    apply(one, config)
    assert versions(one) == sorted([*of_other, recorded[-1]])
    (event,) = one.event_log.events(EventKind.DELETED)
    assert event.details["versions"] == [unrecorded, recorded[0]]


def test_default_deletion_is_announced_by_a_run_before(service: Service) -> None:
    roots = make_runs(service, 33)
    config = keeping()
    assert apply(service, service.config) == [], "without a schedule"
    (shown,) = retention(service, config).delete_expired()
    assert shown.startswith("the next run deletes 3 runs, the oldest run-00, as the newest 10")
    assert shown.endswith("to keep all: schedule: {keep: {versions: all, runs: all}}")
    assert all(root.exists() for root in roots)
    assert apply(service, keeping("keep: {versions: all, runs: all}")) == []

    (deleted,) = retention(service, config).delete_expired()
    assert deleted == "3 runs and 0 artifacts deleted, 0.0 MB"
    assert [root.exists() for root in roots] == [False] * 3 + [True] * 30
    shutil.copytree(roots[-1], service.layout.run("run-99").root)
    assert retention(service, config).delete_expired() == []
    assert not roots[3].exists(), "shown in the history alone from then on"
    assert len(service.event_log.events(EventKind.DELETED)) == 2


def _killed(service: Service, config: PipelineConfig, at: int) -> None:
    """Applies the retention, and kills this process when it deletes a folder for the nth time."""
    folders = 0
    rmtree = shutil.rmtree

    def killing(path: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal folders
        folders += 1
        if folders == at:
            os.kill(os.getpid(), signal.SIGKILL)
        rmtree(path, *args, **kwargs)

    shutil.rmtree = killing
    apply(service, config)


@pytest.mark.parametrize("at", [1, 5])
def test_killed_deletion_is_finished_by_the_next(service: Service, at: int) -> None:
    numbers = [service.push(content) for content in "abcd"]
    roots = make_runs(service, 3)
    config = keeping("keep: {versions: 2, runs: 1}")
    process = multiprocessing.get_context("fork").Process(
        target=_killed, args=(service, config, at)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL

    apply(service, config)

    assert versions(service) == numbers[2:]
    assert [root.exists() for root in roots] == [False, False, True]
    assert list(service.layout.root.rglob(".deleted-*")) == []
    assert apply(service, config) == []
