"""A metadata store that cannot be used is named before a run, in a sentence, and left alone."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2

from pipeline.config.loading import load_config
from pipeline.config.metadata_url import PASSWORD_VARIABLE
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records import metadata_store as metadata
from pipeline.records.metadata_store import (
    check_store,
    connection_config,
    copy_to_sqlite,
    sqlite_connection,
)
from tests.support.mariadb_server import PASSWORD, USER, MariaDB, mariadb
from trainer_module.errors import ConfigError, TryLaterError

ROOT = Path(__file__).parents[4]
DIGITS = ROOT / "configs" / "digits.yaml"
TEXTS = ("plain", "Größe", "数字", "😀", "")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    config = load_config(DIGITS)
    layout = Layout.of(config.name, config.push, tmp_path)
    layout.root.mkdir(parents=True)
    return layout


@pytest.fixture
def file(layout: Layout) -> Path:
    """A store with something in it."""
    fill(sqlite_connection(layout.metadata))
    return layout.metadata


def fill(connection: metadata_store_pb2.ConnectionConfig) -> None:
    """Writes one execution that made artifacts with every kind of text, in a context."""
    store = ml_metadata.MetadataStore(connection)
    kind = metadata_store_pb2.ArtifactType(name="Thing")
    kind.properties["text"] = metadata_store_pb2.STRING
    kind.properties["number"] = metadata_store_pb2.INT
    kind.properties["share"] = metadata_store_pb2.DOUBLE
    kind.properties["is"] = metadata_store_pb2.BOOLEAN
    kind.properties["any"] = metadata_store_pb2.PROTO
    artifact_type = store.put_artifact_type(kind)
    execution_type = store.put_execution_type(metadata_store_pb2.ExecutionType(name="Doing"))
    context_type = store.put_context_type(metadata_store_pb2.ContextType(name="Run"))
    context = metadata_store_pb2.Context(type_id=context_type, name="r1")
    pairs = []
    for text in TEXTS:
        artifact = metadata_store_pb2.Artifact(type_id=artifact_type, uri=f"/data/{text}")
        artifact.properties["text"].string_value = text
        artifact.properties["number"].int_value = 2_000_000_000
        artifact.properties["share"].double_value = 1 / 3
        artifact.properties["is"].bool_value = True
        artifact.properties["any"].proto_value.Pack(kind)
        artifact.custom_properties["list"].struct_value.update({text: [1, text]})
        event = metadata_store_pb2.Event(type=metadata_store_pb2.Event.OUTPUT)
        event.path.steps.add().key = text
        pairs.append((artifact, event))
    execution = metadata_store_pb2.Execution(type_id=execution_type)
    store.put_execution(execution, pairs, [context])


def contents(connection: metadata_store_pb2.ConnectionConfig) -> list[str]:
    """Everything in a store, as ML Metadata reads it."""
    store = ml_metadata.MetadataStore(connection)
    executions, contexts = store.get_executions(), store.get_contexts()
    return [
        str(part)
        for parts in (
            store.get_artifact_types(),
            store.get_artifacts(),
            executions,
            contexts,
            store.get_events_by_execution_ids([execution.id for execution in executions]),
            *(store.get_artifacts_by_context(context.id) for context in contexts),
            *(store.get_executions_by_context(context.id) for context in contexts),
        )
        for part in parts
    ]


def refused(layout: Layout, config: PipelineConfig | None = None) -> str:
    """The message of the check: one line, without the password."""
    with pytest.raises(ConfigError) as caught:
        check_store((config or load_config(DIGITS)).metadata, layout)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_valid_or_missing_store_passes(layout: Layout) -> None:
    check_store(load_config(DIGITS).metadata, layout)
    assert not layout.metadata.exists()
    layout.metadata.touch()  # As a run leaves it that is killed at once.
    check_store(load_config(DIGITS).metadata, layout)
    fill(sqlite_connection(layout.metadata))
    before = layout.metadata.read_bytes()
    check_store(load_config(DIGITS).metadata, layout)
    assert layout.metadata.read_bytes() == before


def _execute(path: Path, statement: str, *values: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


DAMAGES = {
    "no database": lambda path: path.write_bytes(b"is this a database?" * 300),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100_000]),
    "overwritten": lambda path: path.write_bytes(
        path.read_bytes()[:20_000] + b"\xff" * 8192 + path.read_bytes()[28_192:]
    ),
    "without its version": lambda path: _execute(path, "DROP TABLE MLMDEnv"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_corrupt_store_is_refused_unchanged(file: Path, layout: Layout, damage) -> None:
    damage(file)
    before = file.read_bytes()
    shown = refused(layout)
    assert shown.startswith(f"{file}: the metadata is corrupt (")
    assert "the store was not changed. Restore a backup, or move this file and the" in shown
    assert "then every component runs again" in shown
    assert "is not compared with the model in service" in shown
    assert file.read_bytes() == before
    assert [path.name for path in layout.root.iterdir()] == ["metadata.db"]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (99, "a newer"),
    ],
)
def test_store_of_another_version_is_refused_unchanged(
    file: Path, layout: Layout, version: int, words: str
) -> None:
    _execute(file, "UPDATE MLMDEnv SET schema_version = ?", version)
    before = file.read_bytes()
    shown = refused(layout)
    assert f"written by {words} version of ML Metadata (schema {version}; the installed" in shown
    assert file.read_bytes() == before


def test_locked_store_is_refused(
    file: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "BUSY_SECONDS", 0.2)
    script = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('BEGIN EXCLUSIVE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert "another process has locked the metadata" in refused(layout)
        assert process.stdin is not None
        process.stdin.close()
    check_store(load_config(DIGITS).metadata, layout)


@pytest.mark.parametrize("scheme", ["mysql://scopeline@{}/meta", "grpc://{}"])
def test_unreachable_server_may_be_tried_later(layout: Layout, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    config = load_config(DIGITS, [f"metadata={scheme.format(address)}"])
    with pytest.raises(TryLaterError, match=r"check that the ser[a-z]+ is running, and check host"):
        check_store(config.metadata, layout)


def test_copy_of_a_file_is_the_same(file: Path, layout: Layout, tmp_path: Path) -> None:
    copy_to_sqlite(load_config(DIGITS).metadata, layout, tmp_path / "copy.db")
    copied = contents(sqlite_connection(tmp_path / "copy.db"))
    assert copied == contents(sqlite_connection(file))
    assert len(copied) > 3 * len(TEXTS)


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    with mariadb() as running:
        running.administer("CREATE DATABASE meta CHARACTER SET latin1")
        running.administer("CREATE DATABASE meta_utf8 CHARACTER SET utf8mb4")
        yield running


@pytest.fixture
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)


def on(url: str) -> PipelineConfig:
    return load_config(DIGITS, [f"metadata={url}"])


@pytest.mark.slow
@pytest.mark.usefixtures("_password")
@pytest.mark.parametrize("database", ["meta_utf8"])
def test_server_is_used_and_copied(
    server: MariaDB, layout: Layout, tmp_path: Path, database: str
) -> None:
    config = on(server.url(database, host="localhost"))  # By its port, not by a socket file.
    copy_to_sqlite(config.metadata, layout, tmp_path / "nothing.db")
    assert contents(sqlite_connection(tmp_path / "nothing.db")) == []
    check_store(config.metadata, layout)
    fill(connection_config(config.metadata, layout))
    check_store(config.metadata, layout)
    copy_to_sqlite(config.metadata, layout, tmp_path / "copy.db")
    copied = contents(sqlite_connection(tmp_path / "copy.db"))
    assert copied == contents(connection_config(config.metadata, layout))
    assert len(copied) > 3 * len(TEXTS)
    assert not layout.metadata.exists()


@pytest.mark.slow
def test_wrong_or_missing_password_is_refused(
    server: MariaDB, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url("meta")
    monkeypatch.setenv(PASSWORD_VARIABLE, "another")
    shown = refused(layout, on(url))
    assert shown == (
        f"{url}: the metadata server refuses access; the environment variable "
        f"{PASSWORD_VARIABLE} contains a wrong password, or there is no user '{USER}'"
    )
    monkeypatch.delenv(PASSWORD_VARIABLE)
    assert f"{PASSWORD_VARIABLE} is not set, or there is no user '{USER}'" in refused(
        layout, on(url)
    )
