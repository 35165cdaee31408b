"""Retention after many nights that TFX's launcher and ML Metadata have recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ml_metadata.proto import metadata_store_pb2 as pb

from components.resolvers import _training_examples
from pipeline.config.loading import load_config
from pipeline.runs.plan import PlannedComponent, make_plan
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


@pytest.mark.slow
def test_retention_of_many_nights_changes_no_plan(nights: Nights) -> None:
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
