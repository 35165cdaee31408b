"""A pipeline that has pushed: real folders, ledger and metadata, but no training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
from ml_metadata.proto import metadata_store_pb2 as pb

from components.pusher.certificate import CERTIFICATE_FOLDER, Certificate, digest_files
from components.pusher.versions import (
    WITHDRAWN_PROPERTY,
    Provenance,
    list_versions,
    mark_withdrawn,
    push_new_version,
)
from components.serving.certificate import write_certificate
from pipeline.config.loading import load_config
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata_store import sqlite_connection
from pipeline.versions.rollback import RollbackRequest, roll_back
from pipeline.versions.withdrawal import withdraw
from tests.support import warm

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "configs" / "digits.yaml"


@dataclass
class Service:
    """A pipeline that has pushed: its output folder, ledger and metadata."""

    output: Path
    overrides: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.config = load_config(DIGITS, self.overrides)
        self.layout = Layout.of(self.config.name, self.config.push, self.output)
        self.layout.root.mkdir(parents=True, exist_ok=True)
        self.event_log = EventLog(self.layout.event_log)
        self.connection = sqlite_connection(self.layout.metadata)
        self.store = mlmd.MetadataStore(self.connection)
        self.kind = self.store.put_artifact_type(pb.ArtifactType(name="Model"))

    def push(
        self,
        content: str,
        *,
        recorded: bool = True,
        certified: bool = False,
        kind: str | None = "tabular",
    ) -> int:
        """Pushes a model as a run does; one whose content was pushed before is the same model.

        Without a kind, the event is one of an older release.
        """
        folder = self.layout.pipeline_root / "Trainer" / "model" / content
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "saved_model.pb").write_text(content)
            artifact = pb.Artifact(type_id=self.kind, uri=str(folder), state=pb.Artifact.LIVE)
            self.store.put_artifacts([artifact])
        model = self.model(content)
        provenance = Provenance(
            model=str(folder),
            model_id=model.id,
            model_created=model.create_time_since_epoch,
            run="a-run",
            pushed_at="2026-01-05T10:00:00+00:00",
        )
        certificate = self.certificate(folder) if certified else None
        serving = Path(self.layout.serving)
        version = push_new_version(folder, serving, provenance, certificate=certificate)
        if recorded:
            self.event_log.record(
                EventKind.PUSHED,
                f"to {version}",
                run="a-run",
                version=version.name,
                path=str(version),
                model=str(folder),
                metrics={"accuracy": 0.5},
                window=[0],
                strategy=f"strategy of {content}",
                **({} if kind is None else {"model_kind": kind}),
            )
        return int(version.name)

    def certificate(self, model: Path) -> Path:
        """The folder of a certificate of a model's files, about no answers."""
        folder = self.layout.pipeline_root / "InfraValidator" / model.name / CERTIFICATE_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        certificate = Certificate(1e-3, 0, "serving_default", files=digest_files(model))
        write_certificate(certificate, folder, [], {})
        return folder

    def folder(self, number: int) -> Path:
        return Path(self.layout.serving) / str(number)

    def model(self, content: str) -> pb.Artifact:
        """The Model artifact of a content."""
        uri = str(self.layout.pipeline_root / "Trainer" / "model" / content)
        (artifact,) = self.store.get_artifacts_by_uri(uri)
        return artifact

    def marks(self) -> dict[str, int]:
        """The mark of each model."""
        return {
            Path(a.uri).name: a.custom_properties[WITHDRAWN_PROPERTY].int_value
            for a in self.store.get_artifacts_by_type("Model")
        }

    def serving(self) -> str:
        """The content of what a server loads."""
        newest = list_versions(Path(self.layout.serving))[-1]
        return (newest / "saved_model.pb").read_text()

    def count(self) -> int:
        return len(list_versions(Path(self.layout.serving)))

    def rollback(self, *args: Any, **kwargs: Any) -> list[str]:
        return roll_back(self.config, self.layout, self.event_log, RollbackRequest(*args, **kwargs))

    def withdraw(self, number: int, force: bool = False) -> None:
        """Withdraws a version; one that serves only by force, as an earlier release could."""
        if force:
            mark_withdrawn(self.folder(number), None)
        else:
            withdraw(self.config, self.layout, self.event_log, number)

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        runner = [sys.executable, str(ROOT / "local_runner.py"), *arguments]
        return warm.run(
            [*runner, "--output", str(self.output)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.output,
            env={**os.environ, **environment},
        )

    def models(self) -> list[dict[str, Any]]:
        """The output of `models --json`."""
        done = self.command("models", "--json")
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))
