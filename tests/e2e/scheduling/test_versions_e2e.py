"""Versions of real runs: a push that was killed, a rollback, what a rerun does, what is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
import pytest
from ml_metadata.proto import metadata_store_pb2 as pb

from components.pusher.versions import (
    CARD_JSON,
    CARD_MARKDOWN,
    list_versions,
    read_provenance,
)
from components.resolvers import _training_examples
from pipeline.config.loading import load_config
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata_store import sqlite_connection
from pipeline.versions.retention import Retention
from tests.support.project import ROOT, SMALL, Project, wait_until

pytestmark = pytest.mark.slow

CONFIG = ROOT / "configs" / "digits.yaml"
EASY = ("--set", SMALL, "--set", "evaluate.thresholds={accuracy: {min: 0, tolerance: 1}}")


def run_with(epochs: int) -> tuple[str, ...]:
    return ("run", *EASY, "--set", f"train.epochs={epochs}")


@pytest.fixture(scope="module")
def layout(project: Project) -> Layout:
    config = load_config(CONFIG)
    return Layout.of(config.name, config.push, project.output)


@pytest.fixture(scope="module")
def pushed(project: Project, layout: Layout) -> list[Path]:
    """Two runs that pushed; the second was killed as soon as its version was there."""
    first = project.scopeline(*run_with(1))
    assert first.returncode == 0, first.stdout + first.stderr
    serving = Path(layout.serving)
    process = project.start(*run_with(2))
    wait_until(lambda: len(list_versions(serving)) == 2, process, pause=0.001)
    process.kill()
    process.communicate()
    return list_versions(serving)


def models(project: Project) -> list[dict[str, Any]]:
    return list(json.loads(project.scopeline("models", "--json").stdout))


def artifacts(layout: Layout, *kinds: str) -> list[pb.Artifact]:
    store = mlmd.MetadataStore(sqlite_connection(layout.metadata))
    found: Iterable[pb.Artifact] = store.get_artifacts()
    return [artifact for artifact in found if not kinds or artifact.type in kinds]


def executions(layout: Layout) -> list[pb.Execution]:
    return list(mlmd.MetadataStore(sqlite_connection(layout.metadata)).get_executions())


def models_data(layout: Layout) -> dict[int, set[int]]:
    """The Examples that each model was trained on."""
    store = mlmd.MetadataStore(sqlite_connection(layout.metadata))
    return {a.id: _training_examples(store, a.id) for a in artifacts(layout, "Model")}


DESCRIPTIONS = {"pushed.json", CARD_JSON, CARD_MARKDOWN}


def contents(folder: Path) -> dict[str, bytes]:
    """All files, but for what a version says of itself."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in DESCRIPTIONS and path.parent.name != "certificate"
    }


def run_of_card(version: Path) -> str:
    """The run that both files of the model card name."""
    card = json.loads((version / CARD_JSON).read_text())
    run = str(card["model_details"]["version"]["name"])
    assert f"| Run | {run} |" in (version / CARD_MARKDOWN).read_text()
    return run


def test_version_of_a_killed_run_is_not_pushed_again(
    project: Project, layout: Layout, pushed: list[Path]
) -> None:
    killed = project.summary("digits")
    assert killed["status"] == "running"
    listed = models(project)
    assert [v["serves"] for v in listed] == [True, False]
    assert listed[0]["metrics"] == {}, "the run had written its push down before it was killed"

    again = project.scopeline(*run_with(2))

    assert again.returncode == 0, again.stdout + again.stderr
    assert project.states("digits")["Trainer"] == "cached"
    assert project.summary("digits")["pushed"] == str(pushed[-1])
    assert list_versions(Path(layout.serving)) == pushed
    newest = models(project)[0]
    assert newest["metrics"]["accuracy"] > 0
    assert newest["strategy"] == "mirrored"
    provenance = read_provenance(pushed[-1])
    assert provenance is not None
    (model,) = [a for a in artifacts(layout, "Model") if a.uri == provenance.model]
    assert provenance.model_id == model.id
    assert provenance.model_created == model.create_time_since_epoch
    assert contents(pushed[-1]) == contents(Path(model.uri) / "Format-Serving")
    assert run_of_card(pushed[-1]) == provenance.run == killed["run_id"]


def test_rollback_puts_the_first_in_service_and_the_second_never_comes_back(
    project: Project, layout: Layout, pushed: list[Path]
) -> None:
    done = project.scopeline("rollback", "--hold", "--reason", "complaints")
    assert done.returncode == 0, done.stderr
    *old, serving = list_versions(Path(layout.serving))
    assert old == pushed
    assert contents(serving) == contents(pushed[0])
    assert run_of_card(serving) == run_of_card(pushed[0]) < run_of_card(pushed[1])
    bad = read_provenance(pushed[1])
    assert bad is not None
    marks = {a.uri: a.custom_properties["withdrawn"].int_value for a in artifacts(layout, "Model")}
    assert [uri for uri, mark in marks.items() if mark] == [bad.model]

    # The config still trains the model that was withdrawn: from the cache, up to the push.
    rerun = project.scopeline(*run_with(2))
    assert rerun.returncode == 3, rerun.stdout + rerun.stderr
    states = project.states("digits")
    assert (states["Trainer"], states["Pusher"]) == ("cached", "skipped")
    assert list_versions(Path(layout.serving)) == [*pushed, serving]

    # A new model is compared with the one in service, not with the one that was withdrawn.
    third = project.scopeline(*run_with(3))
    assert third.returncode == 4, third.stdout + third.stderr
    assert "held back (complaints)" in third.stdout
    assert list_versions(Path(layout.serving)) == [*pushed, serving]
    first = models(project)[-1]["metrics"]["accuracy"]
    compared = project.summary("digits")["metrics"]["accuracy"]["in_service"]
    assert compared == pytest.approx(first, abs=1e-4)

    # It is pushed when the hold is released and somebody approves.
    (waits,) = [listed for listed in models(project) if listed["waits"]]
    assert project.scopeline("release").returncode == 0
    done = project.scopeline("approve", str(waits["version"]), "--reason", "checked")
    assert done.returncode == 0, done.stderr
    rerun = project.scopeline(*run_with(3))
    assert rerun.returncode == 0, rerun.stdout + rerun.stderr


def test_old_runs_are_deleted_and_the_last_one_stays_cached(
    project: Project, layout: Layout, pushed: list[Path]
) -> None:
    config = load_config(CONFIG, ["schedule={cron: 0 3 * * *, keep: {runs: 1}}"])
    event_log = EventLog(layout.event_log)
    behind = {v["model"] for v in models(project)}
    before = {a.id: a.uri for a in artifacts(layout)}
    executed, trained = executions(layout), models_data(layout)

    retention = Retention(config.schedule, config.drift, config.metadata, layout, event_log)
    (line,) = retention.apply()

    live = [a for a in artifacts(layout) if a.state == pb.Artifact.LIVE]
    deleted = before.keys() - {a.id for a in live}
    assert deleted
    assert not any(Path(before[number]).exists() for number in deleted)
    assert deleted - {a.id for a in artifacts(layout)}, "the metadata forgets, too"
    assert {e.id for e in executions(layout)} < {e.id for e in executed}
    assert models_data(layout) == trained, "but not where the models come from"
    assert all(Path(a.uri).exists() for a in live)
    assert {a.uri for a in live if a.type == "Model"} == behind
    assert {a.type for a in live} >= {"Examples", "ExampleStatistics", "Schema", "ModelBlessing"}
    (kept,) = (layout.root / "runs").iterdir()
    assert (kept / "report.html").is_file()
    event = event_log.last(EventKind.DELETED)
    assert event is not None
    assert event.message == line
    assert event.details["artifacts"] == len(deleted)
    assert event.details["bytes"] > 0
    assert retention.apply() == []

    rerun = project.scopeline(*run_with(3))
    assert rerun.returncode == 0, rerun.stdout + rerun.stderr
    assert set(project.states("digits").values()) == {"cached"}


def test_older_config_does_not_hit_what_was_deleted(
    project: Project, layout: Layout, pushed: list[Path]
) -> None:
    """Its executions are in the metadata, but not all that they gave is there."""
    gone = [a.uri for a in artifacts(layout) if a.state == pb.Artifact.DELETED]
    assert any("/Trainer/model_run/" in uri for uri in gone)
    back = project.scopeline(*run_with(1))
    assert back.returncode == 0, back.stdout + back.stderr
    states = project.states("digits")
    assert states["Transform"] == "cached"
    assert (states["Trainer"], states["Evaluator"], states["Pusher"]) == ("ran", "ran", "ran")
    assert all(Path(a.uri).exists() for a in artifacts(layout) if a.state == pb.Artifact.LIVE)


def test_killed_deletion_is_finished_by_the_next(
    project: Project, layout: Layout, pushed: list[Path]
) -> None:
    """Killed after the metadata was changed, and before the files were deleted."""
    config = load_config(CONFIG, ["schedule={cron: 0 3 * * *, keep: {versions: 1, runs: 1}}"])
    event_log = EventLog(layout.event_log)
    store = mlmd.MetadataStore(sqlite_connection(layout.metadata))
    old = next(a for a in artifacts(layout, "PushedModel") if a.state == pb.Artifact.LIVE)
    old.state = pb.Artifact.DELETED
    store.put_artifacts([old])
    assert Path(old.uri).exists()

    Retention(config.schedule, config.drift, config.metadata, layout, event_log).apply()

    assert not Path(old.uri).exists()
    (serving,) = list_versions(Path(layout.serving))
    (left,) = models(project)
    assert (left["path"], left["serves"]) == (str(serving), True)
    assert all(Path(a.uri).exists() for a in artifacts(layout) if a.state == pb.Artifact.LIVE)
    rerun = project.scopeline(*run_with(1))
    assert rerun.returncode == 0, rerun.stdout + rerun.stderr
    assert project.states("digits")["Trainer"] == "cached"
    assert list_versions(Path(layout.serving)) == [serving]
