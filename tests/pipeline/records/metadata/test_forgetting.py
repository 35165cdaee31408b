"""Records are deleted from a store by SQL: ML Metadata reads on, and nothing refers to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
import pytest
from ml_metadata.proto import metadata_store_pb2 as pb

from pipeline.config.loading import load_config
from pipeline.config.metadata_url import PASSWORD_VARIABLE
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata_store import check_store, connection_config, copy_to_sqlite, forget
from tests.support.mariadb_server import PASSWORD, mariadb

DIGITS = Path(__file__).parents[4] / "configs" / "digits.yaml"
REFERENCES = {
    ("Event", "execution_id"): "Execution",
    ("Event", "artifact_id"): "Artifact",
    ("EventPath", "event_id"): "Event",
    ("Association", "execution_id"): "Execution",
    ("Association", "context_id"): "Context",
    ("Attribution", "artifact_id"): "Artifact",
    ("Attribution", "context_id"): "Context",
    ("ParentContext", "context_id"): "Context",
    ("ExecutionProperty", "execution_id"): "Execution",
    ("ArtifactProperty", "artifact_id"): "Artifact",
    ("ContextProperty", "context_id"): "Context",
}
"""Which rows refer to which."""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    config = load_config(DIGITS)
    layout = Layout.of(config.name, config.push, tmp_path)
    layout.root.mkdir(parents=True)
    return layout


def put_run(store: mlmd.MetadataStore, run: str, taken: int | None = None) -> tuple[int, int]:
    """A run with one execution, as TFX records it; the ids of the execution and of its output."""
    artifact_type = store.put_artifact_type(pb.ArtifactType(name="Thing"))
    execution_type = store.put_execution_type(pb.ExecutionType(name="Doing"))
    contexts = []
    for kind, name in (("pipeline", "p"), ("pipeline_run", run), ("execution_cache", f"#{run}")):
        type_id = store.put_context_type(pb.ContextType(name=kind))
        found = store.get_context_by_type_and_name(kind, name)
        context = found or pb.Context(type_id=type_id, name=name)
        context.custom_properties["of"].string_value = run
        contexts.append(context)
    made = pb.Artifact(type_id=artifact_type, uri=f"/{run}", state=pb.Artifact.LIVE)
    made.custom_properties["text"].string_value = f"{run} ä"
    execution = pb.Execution(type_id=execution_type)
    execution.custom_properties["config"].string_value = "x" * 2000
    event = pb.Event(type=pb.Event.OUTPUT)
    event.path.steps.add().key = "things"
    pairs = [(made, event)]
    if taken is not None:
        (before,) = store.get_artifacts_by_id([taken])
        pairs.append((before, pb.Event(type=pb.Event.INPUT)))
    done, artifacts, ids = store.put_execution(
        execution, pairs, contexts, reuse_context_if_already_exist=True
    )
    store.put_parent_contexts([pb.ParentContext(child_id=ids[1], parent_id=ids[0])])
    return done, artifacts[0]


def fill(connection: Any, runs: int = 3) -> list[tuple[int, int]]:
    """Runs each of which takes what the one before made."""
    store, made = mlmd.MetadataStore(connection), list[tuple[int, int]]()
    for number in range(runs):
        made.append(put_run(store, f"run {number}", made[-1][1] if made else None))
    return made


def state(connection: Any) -> dict[str, list[str]]:
    """The contents of a store by ML Metadata."""
    store = mlmd.MetadataStore(connection)
    executions = store.get_executions()
    return {
        "artifacts": [a.uri for a in store.get_artifacts()],
        "executions": [str(e.id) for e in executions],
        "contexts": sorted(c.name for c in store.get_contexts()),
        "events": [
            f"{e.execution_id} {e.artifact_id}"
            for e in store.get_events_by_execution_ids([e.id for e in executions])
        ],
    }


def rows_without_their_others(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [
            f"{table}.{column}"
            for (table, column), other in REFERENCES.items()
            if connection.execute(
                f"SELECT 1 FROM {table} WHERE {column} NOT IN (SELECT id FROM {other})"  # noqa: S608
            ).fetchall()
        ]


@pytest.fixture(params=["sqlite", pytest.param("mysql", marks=pytest.mark.slow)])
def config(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "sqlite":
        yield load_config(DIGITS)
        return
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    with mariadb() as server:
        server.administer("CREATE DATABASE meta")
        yield load_config(DIGITS, [f"metadata={server.url('meta')}"])


def test_deleted_records_leave_no_references(
    config: PipelineConfig, layout: Layout, tmp_path: Path
) -> None:
    connection = connection_config(config.metadata, layout)
    (first, output), (second, kept), (third, newest) = fill(connection)
    forget(config.metadata, layout, [first], [])
    forget(config.metadata, layout, [second], [output])

    check_store(config.metadata, layout)
    assert state(connection) == {
        "artifacts": ["/run 1", "/run 2"],
        "executions": [str(third)],
        "contexts": ["#run 2", "p", "run 2"],
        "events": [f"{third} {newest}", f"{third} {kept}"],
    }
    copy_to_sqlite(config.metadata, layout, tmp_path / "copy.db")
    assert rows_without_their_others(tmp_path / "copy.db") == []
    assert put_run(mlmd.MetadataStore(connection), "run 4")[0] > third, "no id comes twice"
    forget(config.metadata, layout, [third], [kept, newest])
    assert state(connection)["artifacts"] == ["/run 4"]


def _forget_and_be_killed(layout: Layout, ids: tuple[list[int], list[int]], at: int) -> None:
    """Kills this process at its statement of that number."""
    statements = 0

    def killing(statement: str) -> None:
        nonlocal statements
        statements += 1
        if statements == at:
            os.kill(os.getpid(), signal.SIGKILL)

    class Killing(sqlite3.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.set_trace_callback(killing)

    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **kwargs: connect(*args, factory=Killing, **kwargs)
    forget(load_config(DIGITS).metadata, layout, *ids)


@pytest.mark.parametrize("at", [6, 17, 99])
def test_killed_deletion_is_all_or_nothing(layout: Layout, at: int) -> None:
    config = load_config(DIGITS)
    connection = connection_config(config.metadata, layout)
    made = fill(connection)
    before = state(connection)
    ids = [made[0][0], made[1][0]], [made[0][1]]
    process = multiprocessing.get_context("fork").Process(
        target=_forget_and_be_killed, args=(layout, ids, at)
    )
    process.start()
    process.join(60)
    check_store(config.metadata, layout)
    assert process.exitcode == (0 if at == 99 else -signal.SIGKILL)
    assert (state(connection) == before) is (at != 99)
    forget(config.metadata, layout, *ids)
    assert len(state(connection)["executions"]) == 1
    assert rows_without_their_others(layout.metadata) == []
