"""Real trainings in pods, started by the Trainer's executor: pods are lost, the model is made."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tfx import types
from tfx.types import standard_artifacts

from components.trainer.component import ClusterTrainerExecutor
from components.trainer.options import TrainerOptions
from tests.support.kube_gangs import meanwhile, needs_pods, wait_until
from tests.support.kube_server import ROOT, KubeServer
from trainer_module.errors import ConfigError
from trainer_module.runtime import RECORD_FILE
from trainer_module.settings import TrainerSettings

sys.path.append(str(ROOT / "tests" / "trainer_module"))
from tests.support.trainer_data import Row, run_transform

pytestmark = [pytest.mark.timeout(240), needs_pods, pytest.mark.slow]
EPOCHS = 8


def artifact(kind: type[types.Artifact], path: Path) -> list[types.Artifact]:
    made = kind()
    made.uri = str(path)
    if kind is standard_artifacts.Examples:
        made.split_names = json.dumps(["train", "eval"])
    return [made]


class Step:
    """The Trainer's step of a pipeline whose root is on a volume."""

    def __init__(self, root: Path, number: int) -> None:
        self.trainer = root / "Trainer"
        self.model_run = self.trainer / "model_run" / str(number)
        self.model = self.trainer / "model" / str(number)
        self.inputs = {
            "examples": artifact(standard_artifacts.Examples, root / "transformed"),
            "transform_graph": artifact(standard_artifacts.TransformGraph, root / "graph"),
        }
        self.outputs = {
            "model": artifact(standard_artifacts.Model, self.model),
            "model_run": artifact(standard_artifacts.ModelRun, self.model_run),
        }

    def run(self, run_fn: str = "trainer_module.trainer.run_fn", **train: Any) -> dict[str, Any]:
        """Trains; returns the record, if the function leaves one."""
        settings = TrainerSettings.model_validate(
            {
                "label": "y",
                "task": "binary",
                "model": {"kind": "mlp", "hidden_units": [4]},
                "train": {"epochs": EPOCHS, "batch_size": 16, **train},
            }
        )
        properties = {
            "run_fn": run_fn,
            "train_args": json.dumps({"splits": ["train"]}),
            "eval_args": json.dumps({"splits": ["eval"]}),
            "custom_config": json.dumps(settings.to_custom_config()),
        }
        ClusterTrainerExecutor().Do(self.inputs, self.outputs, properties)
        record = self.model_run / RECORD_FILE
        return dict(json.loads(record.read_text())) if record.exists() else {}

    def wait_for_backup(self) -> None:
        wait_until(lambda: any(self.trainer.glob("backups/*/*")), seconds=90)


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


def test_servers_train_although_a_worker_is_replaced(kube: KubeServer, root: Path) -> None:
    kube.cluster.backoff = 1.5
    step = Step(root, 2)

    def kill() -> None:
        step.wait_for_backup()
        kube.pod("worker", 1).kill()

    with meanwhile(kill):
        record = step.run(
            strategy="parameter_server",
            cluster={"workers": 2, "parameter_servers": 1},
            epochs=3 * EPOCHS,
        )
    assert record["restarts"] == ["worker 1 was killed by SIGKILL"]
    assert (record["resumed_at_step"], record["epochs"]) == (0, 3 * EPOCHS)
    first, *_, last = record["history"]["loss"]
    assert last < first
    kinds = [job["metadata"]["labels"]["scopeline/task"] for job in kube.bodies("Job")]
    assert kinds == ["chief", "worker", "ps"]
    assert kube.left == []


def test_one_process_needs_no_pod(kube: KubeServer, root: Path) -> None:
    Step(root, 4).run("tests.support.kube_workers.export", strategy="one_device")
    assert not kube.used


def test_pods_that_nothing_describes(
    kube: KubeServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in TrainerOptions(launcher="kubernetes").to_environment().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"the image of the pods is unknown; compile the"):
        Step(root, 5).run(strategy="multi_worker_mirrored")
