"""One compiled pipeline, executed node by node as Kubeflow does, with a metadata service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from components.pusher.versions import CARD_JSON
from pipeline.kubeflow.compiled import CompiledPipeline
from tests.support.kfp_executor import Run
from tests.support.kubeflow_cluster import PASSWORD, Cluster, kubeflow_cluster, states, summary
from tests.support.project import write_span

pytestmark = pytest.mark.proof

CONFIG = """
name: customers
data: {format: csv, path: days/1/customers.csv, label: label}
task: binary
model: {kind: mlp, hidden_units: [4]}
train: {epochs: 3, batch_size: 20}
evaluate: {thresholds: {accuracy: {min: 0.1}}}
"""
STEPS = (
    *("Begin", "ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform"),
    *("Trainer", "Evaluator", "InfraValidator", "Pusher", "Conclude"),
)


class Executed(NamedTuple):
    """A pipeline, and its run."""

    cluster: Cluster
    compiled: CompiledPipeline
    run: Run


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executed]:
    with kubeflow_cluster(tmp_path_factory.mktemp("kubeflow")) as cluster:
        write_span(cluster.volume, 1)
        config = cluster.volume.parent / "customers.yaml"
        config.write_text(CONFIG)
        compiled = cluster.compile(config)
        yield Executed(cluster, compiled, cluster.executor(compiled).run({"epochs": 1}))


def test_every_step_runs_once_and_the_model_is_pushed(executed: Executed) -> None:
    run = executed.run
    assert run.state == "SUCCEEDED", run.report()
    assert set(STEPS) <= set(executed.compiled.steps.values())
    assert set(run.tasks) >= set(executed.compiled.steps)
    assert {task.state for task in run.tasks.values()} == {"SUCCEEDED"}
    found = states(run)
    assert set(found) == {*STEPS} - {"Begin", "Conclude"}
    assert set(found.values()) == {"ran"}
    for component in set(found) - {"ExampleGen"}:
        assert executed.cluster.count(component) == 1, component
    ended = summary(run)
    assert (ended.status, ended.run_id) == ("pushed", run.run_id)
    assert ended.training is not None
    assert ended.training["epochs"] == 1, "a parameter of the run"
    served = Path(str(ended.pushed))
    assert served.is_relative_to(executed.cluster.volume / "output/customers/serving/customers")
    assert (served / "saved_model.pb").exists()
    card = json.loads((served / CARD_JSON).read_text())
    assert card["model_details"]["version"]["name"] == run.run_id


def test_outputs_of_steps_for_the_user_interface(executed: Executed) -> None:
    ended = summary(executed.run)
    shown = {name: task.outputs for name, task in executed.run.tasks.items() if task.outputs}
    assert {name: set(outputs) for name, outputs in shown.items()} == {
        "examplegen": {"examples"},
        "evaluator": {"classification", "metrics"},
        "pusher": {"model"},
        "conclude": {"classification", "metrics", "report"},
    }
    rows = {f"rows_{split}": count for split, count in ended.examples.items()}
    assert rows.items() <= shown["examplegen"]["examples"].metadata.items()
    expected = {name: metric.value for name, metric in ended.metrics.items()}
    for step in ("evaluator", "conclude"):
        assert shown[step]["metrics"].metadata == {**expected, "blessed": 1}
        assert "confidenceMetrics" in shown[step]["classification"].metadata
    assert shown["pusher"]["model"].metadata == {"pushed": True, "served": ended.pushed}
    assert executed.run.run_id in Path(shown["conclude"]["report"].uri).read_text()


def test_password_is_in_no_log(executed: Executed) -> None:
    runs = executed.cluster.volume / "output/customers/runs"
    logs = [*executed.cluster.pods.rglob("*.log"), *runs.rglob("*")]
    texts = [path.read_text(errors="replace") for path in logs if path.is_file()]
    assert len(texts) > len(executed.run.tasks)
    assert not [text for text in texts if PASSWORD in text]
