"""What is sent to start a run, and what is refused before anything is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import CompiledPipeline
from pipeline.kubeflow.run_parameters import parse_parameters
from tests.support.kfp_server import KfpServer
from tests.support.small_pipeline import COMPILED, load
from trainer_module.errors import ConfigError

DAYS = {"format": "csv", "path": "days/{YYYY}{MM}{DD}/*.csv", "label": "y"}


def test_parameters_have_the_types_of_their_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, "http://localhost", data=DAYS)
    given = ["epochs=3", "strategy=one_device", "span=2026-01-05"]
    assert parse_parameters(config, given) == {
        "epochs": 3,
        "strategy": "one_device",
        "span": "2026-01-05",
    }
    assert parse_parameters(config, ["epochs=auto"]) == {"epochs": 0}
    assert parse_parameters(config, []) == {}
    assert parse_parameters(config, ["span="]) == {"span": ""}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["epoch=3"], "epoch=3: there is no parameter `epoch`"),
        (["epochs=many"], "epochs=many: expected a whole number, or 0 for"),
        (
            ["epochs=3", "strategy=mirrored"],
            "epochs=3 and strategy=mirrored: train.cluster.workers: found 2",
        ),
    ],
)
def test_parameters_that_are_refused(given: list[str], message: str, tmp_path: Path) -> None:
    train = {"strategy": "multi_worker_mirrored", "cluster": {"workers": 2}}
    config = load(tmp_path, "http://localhost", data=DAYS, train=train)
    with pytest.raises(ConfigError) as found:
        parse_parameters(config, given)
    assert str(found.value).startswith(f"--parameter {message}")


def test_first_submission_creates_pipeline_version_experiment_and_run(
    server: KfpServer, tmp_path: Path
) -> None:
    config = load(
        tmp_path,
        server.url,
        kubeflow={"experiment": "retraining", "service_account": "scopeline"},
    )
    kubeflow = Kubeflow(settings_of(config))
    version = kubeflow.ensure_version(COMPILED)
    run = kubeflow.start_run(version, {"epochs": 3})
    assert version.is_new
    assert server.changes == [
        "POST /pipelines",
        "POST /pipelines/upload_version",
        "POST /experiments",
        "POST /runs",
    ]
    assert server.uploads == {COMPILED.version: COMPILED.yaml}
    [experiment] = server.experiments.values()
    assert experiment["display_name"] == "retraining"
    sent = server.requests[-1].body
    assert sent.pop("display_name").startswith(f"{COMPILED.version} 20")
    assert sent == {
        "experiment_id": experiment["experiment_id"],
        "pipeline_version_reference": {
            "pipeline_id": version.pipeline,
            "pipeline_version_id": version.version,
        },
        "runtime_config": {"parameters": {"epochs": 3}},
        "service_account": "scopeline",
    }
    assert list(server.runs) == [run]


def test_old_kubeflow_is_refused_for_retries(server: KfpServer, tmp_path: Path) -> None:
    server.is_old = True
    kubeflow = Kubeflow(settings_of(load(tmp_path, server.url)))
    with pytest.raises(ConfigError) as refused:
        kubeflow.ensure_version(COMPILED)
    assert str(refused.value) == (
        f"kubeflow.retries: found 2, but {server.url} is older than Kubeflow Pipelines 2.14 and "
        "retries only the last step; upgrade Kubeflow, or set kubeflow.retries=0"
    )
    assert server.changes == []
    config = load(tmp_path, server.url, kubeflow={"retries": 0})
    assert Kubeflow(settings_of(config)).ensure_version(COMPILED).is_new


def test_the_same_content_is_uploaded_once(server: KfpServer, tmp_path: Path) -> None:
    kubeflow = Kubeflow(settings_of(load(tmp_path, server.url)))
    first = kubeflow.ensure_version(COMPILED)
    again = kubeflow.ensure_version(COMPILED)
    assert (again.version, again.is_new) == (first.version, False)
    changed = CompiledPipeline(
        COMPILED.name, COMPILED.yaml + "# changed\n", COMPILED.steps, COMPILED.parameters
    )
    other = kubeflow.ensure_version(changed)
    assert other.pipeline == first.pipeline
    assert server.changes == ["POST /pipelines"] + ["POST /pipelines/upload_version"] * 2
    assert sorted(server.uploads) == sorted([COMPILED.version, changed.version])
