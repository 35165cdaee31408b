"""Retention after many nights that TFX's launcher and ML Metadata have recorded."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ml_metadata.proto import metadata_store_pb2 as pb

from components.pusher.versions import list_versions
from components.resolvers import _training_examples
from pipeline.config.loading import load_config
from pipeline.records import forgetting
from pipeline.records.event_log import EventKind
from pipeline.runs.plan import PlannedComponent, make_plan
from pipeline.versions import retention
from pipeline.versions.catalog import read_catalog
from pipeline.versions.retention import Retention
from tools.simulated_days.nights import WINDOW, Nights

NIGHTS = 30
KEPT_VERSIONS, KEPT_RUNS = 4, 3


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    keep = {"versions": KEPT_VERSIONS, "runs": KEPT_RUNS}
    nights = Nights(tmp_path_factory.mktemp("nights"), keep=keep)
    nights.play(NIGHTS - 1)
    nights.play(1, launch_all=True)
    return nights


def plan(nights: Nights) -> list[PlannedComponent]:
    return list(make_plan(load_config(nights.file), nights.layout))


def retention_of(nights: Nights) -> Retention:
    config = nights.config
    kept = config.schedule, config.drift, config.metadata
    return Retention(*kept, nights.layout, nights.event_log)


def state(nights: Nights) -> dict[str, Any]:
    """What is in the metadata."""
    store = nights.store
    executions = store.get_executions()
    return {
        "executions": len(executions),
        "artifacts": len(store.get_artifacts()),
        "events": len(store.get_events_by_execution_ids([e.id for e in executions])),
        "contexts": len(store.get_contexts()),
    }


def test_what_stays_is_used_as_before(nights: Nights) -> None:
    before, size = state(nights), nights.layout.metadata.stat().st_size
    planned = plan(nights)
    assert not any(component.runs for component in planned)
    behind = {
        a.uri: _training_examples(nights.store, a.id)
        for a in nights.store.get_artifacts_by_type("Model")
    }
    assert len(behind) == NIGHTS

    (line,) = retention_of(nights).apply()

    gone = NIGHTS - KEPT_VERSIONS
    assert line.startswith(f"{gone} versions deleted (")
    assert f"{NIGHTS - KEPT_RUNS} runs and " in line
    assert plan(nights) == planned, "the next run is cached, and resolves what it did"
    after = state(nights)
    assert all(after[kind] < before[kind] / 2 for kind in before), (before, after)
    assert nights.layout.metadata.stat().st_size < size / 1.5

    catalog = read_catalog(nights.layout, nights.event_log)
    assert len(catalog) == KEPT_VERSIONS
    live = {a.uri: a for a in nights.store.get_artifacts() if a.state == pb.Artifact.LIVE}
    assert all(Path(uri).is_dir() for uri in live)
    for version in catalog:
        assert version.model is not None
        examples = _training_examples(nights.store, live[version.model].id)
        assert examples == behind[version.model]
        assert len(examples) == WINDOW
        known = nights.store.get_artifacts_by_id(list(examples))
        assert len(known) == WINDOW, "though the files of some are gone"


def test_the_store_grows_no_more(nights: Nights) -> None:
    sizes = []
    for _ in range(3):
        nights.play(WINDOW, launch_all=False)
        retention_of(nights).apply()
        sizes.append(state(nights))
    assert sizes[1] == sizes[2]
    assert len(list_versions(Path(nights.layout.serving))) == KEPT_VERSIONS
    assert nights.event_log.events(EventKind.DELETED)[-1].details["artifacts"] > 0


@pytest.fixture(scope="module")
def steady(nights: Nights) -> dict[str, Any]:
    """What is in the metadata when as much goes as comes."""
    for _ in range(2):
        nights.play(WINDOW)
        retention_of(nights).apply()
    return state(nights)


def _killed(nights: Nights, module: ModuleType, step: str) -> None:
    """Applies the retention, and kills this process before a step of it."""
    forgetting._MAX_FREE_SHARE = 0  # So that the file is always made smaller.
    setattr(module, step, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    retention_of(nights).apply()


@pytest.mark.parametrize(
    ("module", "step"),
    [
        (retention, "retire_artifacts"),
        (retention, "delete_files"),
        (retention, "forget"),
        (forgetting, "_shrink"),
    ],
)
def test_deletion_killed_in_the_metadata_is_finished(
    nights: Nights, steady: dict[str, Any], module: ModuleType, step: str
) -> None:
    nights.play(WINDOW)
    process = multiprocessing.get_context("fork").Process(
        target=_killed, args=(nights, module, step)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL

    retention_of(nights).apply()

    assert state(nights) == steady
    for artifact in nights.store.get_artifacts():
        assert Path(artifact.uri).exists() == (artifact.state == pb.Artifact.LIVE)
