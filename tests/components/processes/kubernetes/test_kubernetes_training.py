"""A real training in pods, started by the Trainer's executor; one pod is killed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tfx import types
from tfx.types import standard_artifacts

from components.trainer.component import ClusterTrainerExecutor
from components.trainer.options import TrainerOptions
from tests.support.kube_gangs import meanwhile, needs_pods, wait_until
from tests.support.kube_server import KubeServer
from tests.support.trainer_data import Row, run_transform
from trainer_module.runtime import RECORD_FILE
from trainer_module.settings import TrainerSettings

pytestmark = [pytest.mark.timeout(600), needs_pods, pytest.mark.slow]
EPOCHS = 10


def artifact(kind: type[types.Artifact], path: Path) -> list[types.Artifact]:
    made = kind()
    made.uri = str(path)
    if kind is standard_artifacts.Examples:
        made.split_names = json.dumps(["train", "eval"])
    return [made]


class Step:
    """The Trainer's step of a pipeline whose root is on a volume."""

    def __init__(self, root: Path) -> None:
        self.trainer = root / "Trainer"
        self.model_run = self.trainer / "model_run" / "2"
        self.model = self.trainer / "model" / "2"
        self.inputs = {
            "examples": artifact(standard_artifacts.Examples, root / "transformed"),
            "transform_graph": artifact(standard_artifacts.TransformGraph, root / "graph"),
        }
        self.outputs = {
            "model": artifact(standard_artifacts.Model, self.model),
            "model_run": artifact(standard_artifacts.ModelRun, self.model_run),
        }

    def run(self, **train: Any) -> dict[str, Any]:
        """Trains; returns the record."""
        settings = TrainerSettings.model_validate(
            {
                "label": "y",
                "task": "binary",
                "model": {"kind": "mlp", "hidden_units": [4]},
                "train": {"epochs": EPOCHS, "batch_size": 16, **train},
            }
        )
        properties = {
            "run_fn": "trainer_module.trainer.run_fn",
            "train_args": json.dumps({"splits": ["train"]}),
            "eval_args": json.dumps({"splits": ["eval"]}),
            "custom_config": json.dumps(settings.to_custom_config()),
        }
        ClusterTrainerExecutor().Do(self.inputs, self.outputs, properties)
        return dict(json.loads((self.model_run / RECORD_FILE).read_text()))

    def wait_for_backup(self) -> None:
        wait_until(lambda: any(self.trainer.glob("backups/*/*")), seconds=300)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the volume, with what the Trainer reads."""
    generator = random.Random(7)  # noqa: S311

    def make_row() -> Row:
        x = generator.uniform(-1, 1)
        return {"x": x, "y": float(x > 0)}

    root = tmp_path_factory.mktemp("volume")
    rows = [make_row() for _ in range(320)]
    settings = TrainerSettings.model_validate({"label": "y", "task": "binary"})
    run_transform(root, rows[:256], rows[256:], settings)
    return root


@pytest.fixture
def kube(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    pods = {"image": "scopeline:0.1.0", "volume": {"claim": "data", "path": str(root)}}
    options = TrainerOptions.model_validate({"launcher": "kubernetes", "pods": pods})
    server = KubeServer(tmp_path, volumes={"data": root})
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in (server.environment | options.to_environment()).items():
        monkeypatch.setenv(name, value)
    with server:
        yield server


def test_servers_train_in_pods_though_a_worker_is_killed(kube: KubeServer, root: Path) -> None:
    kube.cluster.backoff = 1.5
    step = Step(root)

    def kill() -> None:
        step.wait_for_backup()
        kube.pod("worker", 1).kill()

    with meanwhile(kill):
        record = step.run(
            strategy="parameter_server",
            cluster={"workers": 2, "parameter_servers": 1},
            epochs=EPOCHS,
        )
    assert record["restarts"] == ["worker 1 was killed by SIGKILL"]
    assert (record["resumed_at_step"], record["epochs"]) == (0, EPOCHS)
    first, *_, last = record["history"]["loss"]
    assert last < first
    kinds = [job["metadata"]["labels"]["scopeline/task"] for job in kube.bodies("Job")]
    assert kinds == ["chief", "worker", "ps"]
    assert kube.left == []
