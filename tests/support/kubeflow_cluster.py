"""A cluster for compiled pipelines: the test executor, a volume, and ML Metadata's own service."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kfp import components

from pipeline.kubeflow.compiled import CompiledPipeline, read_report, read_summary
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.records.summary import RunSummary
from tests.support import cpu_budget
from tests.support.kfp_executor import Executor, OnStart, Run, TaskRun
from tests.support.kfp_rules import check_backend_rules, compile_shallow
from tests.support.metadata_service import metadata_service

ROOT = Path(__file__).parents[2]
PASSWORD = "hush-it-is-a-password"  # noqa: S105
MOST_SECONDS_TO_AN_EPOCH = 300


@dataclass(frozen=True)
class Cluster:
    """A namespace with one volume claim and one secret, and a metadata service beside it."""

    volume: Path
    metadata: str
    """The service's URL."""
    database: Path
    """The service's SQLite file."""

    @property
    def settings(self) -> list[str]:
        """The keys of a config that runs here."""
        return [
            "kubeflow.image=registry.example.com/scopeline:0.1.0",
            f"kubeflow.volume={{claim: scopeline, path: {self.volume}}}",
            f"kubeflow.metadata={self.metadata}",
            "kubeflow.secrets={SCOPELINE_METADATA_PASSWORD: {secret: meta, key: password}}",
            "kubeflow.retries=1",
        ]

    def compile(self, config: Path, *settings: str) -> CompiledPipeline:
        """Compiles a config for this cluster, and checks it by the backend's rules."""
        compiled = compile_shallow(load_for_kubeflow(config, [*self.settings, *settings]))
        check(compiled.yaml)
        assert components.load_component_from_text(compiled.yaml).name == compiled.name
        return compiled

    def executor(
        self,
        compiled: CompiledPipeline,
        on_start: OnStart | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Executor:
        """Runs that pipeline."""
        return self.executor_of(compiled.yaml, on_start, environment)

    def executor_of(
        self,
        specification: str,
        on_start: OnStart | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Executor:
        """Runs a pipeline's YAML; the image is this checkout with its environment."""
        return Executor(
            text=specification,
            workdir=self.pods,
            image_env={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                "HOME": str(self.volume.parent),
                "TF_USE_LEGACY_KERAS": "1",
                cpu_budget.VARIABLE: os.environ.get(cpu_budget.VARIABLE, ""),
                **(environment or {}),
            },
            secrets={"meta": {"password": PASSWORD}},
            claims={"scopeline": self.volume},
            on_start=on_start,
        )

    @property
    def pods(self) -> Path:
        """The folder of logs."""
        return self.volume.parent / "cluster"

    def count(self, node_type: str) -> int:
        """How many executions of a component the metadata has."""
        query = "SELECT t.name FROM Execution e JOIN Type t ON e.type_id = t.id"
        with closing(sqlite3.connect(self.database)) as connection:
            names = connection.execute(query).fetchall()
        return sum(str(name).endswith(f".{node_type}") for (name,) in names)


@contextmanager
def kubeflow_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster in a folder, whose metadata service runs in this process."""
    (folder / "volume").mkdir()
    # Every pod is on this machine, which a config for a cluster may not call 127.0.0.1.
    with metadata_service(folder / "metadata.db", host="127.0.0.2") as (url, _):
        yield Cluster(folder / "volume", url, folder / "metadata.db")


def check(specification: str) -> None:
    """Checks a compiled pipeline by the backend's rules."""
    assert check_backend_rules(specification) == []
    assert PASSWORD not in specification


def summary(run: Run) -> RunSummary:
    """The summary in the log of `conclude`."""
    found = read_summary(run.tasks["conclude"].log)
    assert found is not None, run.report()
    return found


def states(run: Run) -> dict[str, str]:
    """By component, what became of it."""
    return {component.name: str(component.state) for component in summary(run).components}


def detail(task: TaskRun) -> str:
    """The detail in a step's report."""
    report = read_report(task.log)
    assert report is not None, task.log
    return report.detail


def kill_once(cluster: Cluster, task: str, mark: str) -> OnStart:
    """Kills the first pod of a task as soon as its log holds a text."""

    def watch(process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + MOST_SECONDS_TO_AN_EPOCH
        while process.poll() is None and time.monotonic() < until:
            logs = cluster.pods.glob(f"pods/*/{task}/0/main.log")
            if any(mark in log.read_text(errors="replace") for log in logs):
                process.kill()
                return
            time.sleep(0.05)

    def on_start(started: str, attempt: int, process: subprocess.Popen[bytes]) -> None:
        if started == task and attempt == 0:
            threading.Thread(target=watch, args=(process,), daemon=True).start()

    return on_start
