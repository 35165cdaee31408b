"""Old artifacts are deleted; what another metadata store has recorded is not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as pb

from pipeline.versions.artifacts import delete_files, retire_artifacts
from tests.support.pipeline_service import Service


def put_execution(store: mlmd.MetadataStore, run: str, contexts: Iterable[tuple[str, str]]) -> int:
    """An execution of a run, as TFX records it; returns its id."""
    kind = store.put_execution_type(pb.ExecutionType(name="Trainer"))
    associated = []
    for kind_of_context, name in [("pipeline_run", run), *contexts]:
        type_id = store.put_context_type(pb.ContextType(name=kind_of_context))
        found = store.get_context_by_type_and_name(kind_of_context, name)
        associated.append(found or pb.Context(type_id=type_id, name=name))
    execution, *_ = store.put_execution(
        pb.Execution(type_id=kind, last_known_state=pb.Execution.RUNNING),
        [],
        associated,
        reuse_context_if_already_exist=True,
    )
    return int(execution)


def make_folder(path: Path, age: float = 0.0) -> Path:
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(b"graph")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_files_of_other_stores_are_not_deleted(service: Service) -> None:
    layout, nodes = service.layout, [("node", "digits.Trainer")]
    killed = put_execution(service.store, "old", nodes)
    same_number = put_execution(service.store, "old", nodes)
    kept = put_execution(service.store, "new", nodes)
    elsewhere = put_execution(service.store, "old", [("node", "other.Trainer")])
    trainer = layout.pipeline_root / "Trainer"
    left = [
        make_folder(trainer / "model" / str(killed)),
        make_folder(trainer / ".system" / "executor_execution" / str(killed)),
    ]
    others = [
        # Of a store that the pipeline had before, whose numbers come up again.
        make_folder(trainer / "model" / str(same_number), age=86400),
        make_folder(trainer / "model" / "99"),
        make_folder(layout.pipeline_root / "Transform" / "graph" / str(killed)),
        make_folder(trainer / "model" / str(elsewhere)),
        make_folder(trainer / "model" / str(kept)),
    ]
    freed = delete_files(layout, retire_artifacts(layout, service.connection, {"new"}, set()))
    assert freed == len(left) * len(b"graph")
    assert [path.exists() for path in left] == [False] * len(left)
    assert [path.exists() for path in others] == [True] * len(others)
