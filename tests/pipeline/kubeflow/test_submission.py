"""What is sent to start a run, and what is refused before anything is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.cluster_layout import pipeline_name, settings_of
from pipeline.kubeflow.compiled import CompiledPipeline
from pipeline.kubeflow.run_parameters import apply_parameters, default_parameters, parse_parameters
from tests.support.kfp_server import Answer, KfpServer
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
        (["epoch=3"], "epoch=3: there is no parameter `epoch`; did you mean `epochs`?"),
        (["x=3"], "x=3: there is no parameter `x`; expected one of epochs, span, strategy"),
        (["epochs=many"], "epochs=many: expected a whole number, or 0 for"),
        (["epochs=2.5"], "epochs=2.5: expected a whole number, or 0 for"),
        (["epochs=-1"], "epochs=-1: expected a whole number, or 0 for"),
        (["epochs"], "epochs: give name=value, such as epochs=3"),
        (["epochs=1", "epochs=2"], "epochs=2: `epochs` is given twice"),
        (
            ["strategy=miror"],
            "strategy=miror: there is no strategy `miror`; did you mean `mirrored`?",
        ),
        (
            ["span=-x"],
            "span=-x: each span at data.path is a date, such as 2026-01-05",
        ),
        (
            ["epochs=3", "strategy=mirrored"],
            "epochs=3 and strategy=mirrored: train.cluster.workers: found 2, but train.strategy",
        ),
    ],
)
def test_parameters_that_are_refused(given: list[str], message: str, tmp_path: Path) -> None:
    train = {"strategy": "multi_worker_mirrored", "cluster": {"workers": 2}}
    config = load(tmp_path, "http://localhost", data=DAYS, train=train)
    with pytest.raises(ConfigError) as found:
        parse_parameters(config, given)
    assert str(found.value).startswith(f"--parameter {message}")


def test_no_epochs_stand_for_as_many_as_the_data_asks_for(tmp_path: Path) -> None:
    config = load(tmp_path, "http://localhost", train={"epochs": 7})
    assert default_parameters(config)["epochs"] == 7
    asked = apply_parameters(config, default_parameters(config) | {"epochs": 0})
    assert asked.train.epochs == "auto"
    assert default_parameters(asked)["epochs"] == 0


def test_parameters_that_do_not_fit_the_config_are_named(tmp_path: Path) -> None:
    train = {"learning_rate": {"schedule": "cosine", "initial": 0.1, "warmup_epochs": 3}}
    config = load(tmp_path, "http://localhost", train=train)
    with pytest.raises(ConfigError) as found:
        parse_parameters(config, ["epochs=2", "strategy=one_device"])
    assert str(found.value).startswith(
        "the config cannot have epochs=2 and strategy=one_device: train: "
        "learning_rate.warmup_epochs is 3; "
    )


def test_data_without_spans_takes_none(tmp_path: Path) -> None:
    config = load(tmp_path, "http://localhost")
    with pytest.raises(ConfigError, match=r"^--parameter span=3: data\.path has no spans"):
        parse_parameters(config, ["span=3"])


def test_a_run_and_all_that_it_needs(server: KfpServer, tmp_path: Path) -> None:
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


def test_a_kubeflow_that_tries_no_step_again_is_refused_where_that_is_asked_for(
    server: KfpServer, tmp_path: Path
) -> None:
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


def test_a_pipeline_is_called_without_underscores_there(server: KfpServer, tmp_path: Path) -> None:
    config = load(tmp_path, server.url, name="my_digits")
    kubeflow = Kubeflow(settings_of(config))
    version = kubeflow.ensure_version(replace(COMPILED, name=pipeline_name(config)))
    run = kubeflow.start_run(version, {})
    assert [found.run_id for found in kubeflow.runs_of(config)] == [run]
    assert list(kubeflow.runs_of(load(tmp_path, server.url, name="my-digits"))) == []


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


@pytest.mark.parametrize(
    "looking",
    ["GET /pipelines$", "GET /pipelines/.*/versions$", "GET /experiments$"],
    ids=["pipeline", "version", "experiment"],
)
def test_somebody_else_creates_it_between_two_calls(
    server: KfpServer, tmp_path: Path, looking: str
) -> None:
    kubeflow = Kubeflow(settings_of(load(tmp_path, server.url)))
    first = kubeflow.ensure_version(COMPILED)
    kubeflow.start_run(first, {})
    server.trouble(looking, Answer(200, "{}"))
    version = kubeflow.ensure_version(COMPILED)
    kubeflow.start_run(version, {})
    assert not server.troubles
    assert version == replace(first, is_new=False)
    assert len({run["experiment_id"] for run in server.runs.values()}) == 1


def test_a_recurring_run_finds_an_experiment_of_that_moment(
    server: KfpServer, tmp_path: Path
) -> None:
    kubeflow = Kubeflow(settings_of(load(tmp_path, server.url)))
    version = kubeflow.ensure_version(COMPILED)
    kubeflow.start_run(version, {})
    server.trouble("GET /experiments$", Answer(200, "{}"))
    recurring = kubeflow.create_recurring_run("digits", version, "0 0 3 * * *")
    [experiment] = server.experiments
    assert server.recurring[recurring]["experiment_id"] == experiment


def test_a_conflict_that_is_none_of_names(server: KfpServer, tmp_path: Path) -> None:
    kubeflow = Kubeflow(settings_of(load(tmp_path, server.url)))
    server.trouble("POST /pipelines$", Answer(409, '{"error_message": "Failed to create"}'))
    with pytest.raises(ConfigError) as found:
        kubeflow.ensure_version(COMPILED)
    assert "cannot create the pipeline `digits`: it already exists (409): Failed to" in str(
        found.value
    )
