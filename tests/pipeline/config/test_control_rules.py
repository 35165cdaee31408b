"""What is said of a config of `task: control` before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.loading import load_config
from pipeline.config.user_code import CODE_KEY
from pipeline.data.files import locate_data
from pipeline.graph.create import create_pipeline
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.layout import Layout
from pipeline.run_context import RunContext
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[3]
CARTPOLE = ROOT / "configs" / "cartpole.yaml"


def test_the_config_that_is_shipped_is_fine() -> None:
    config = load_config(CARTPOLE)
    settings = config.trainer_settings
    assert settings.model.hidden_units == [256, 256]
    assert (settings.train.steps, settings.train.batch_size) == (60_000, 128)
    assert settings.train.learning_rate == 1e-3
    again = type(settings).from_custom_config(settings.to_custom_config())
    assert again == settings
    # What blesses models of all tasks reads these.
    load_config(CARTPOLE, ["evaluate={confidence: 0.9, ties: keep}"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["data.path=gymnasium:Pendulum-v1"], "data.path: the environment 'gymnasium:Pendulum-v1'"),
        (["data.path=gymnasium:CartPole-v9"], "(VersionNotFound: "),
        (["data.path=nowhere"], "data.path: found 'nowhere'; give gymnasium:NAME, such as"),
        (
            ["data.path=gymnasium:this:Room-v0"],
            "names a module, which gymnasium would import; give",
        ),
        (
            ["train.steps=800"],
            "train.steps: found 800, but learning begins after 1,000 transitions; give more steps",
        ),
        (
            ["data.episodes=9", "data.policy=nowhere"],
            "data.policy: found 'nowhere', which is not the folder of a pushed",
        ),
        (["data.policy=random"], "data.policy: add data.episodes, the number"),
        (["data.format=csv"], "found 'csv'; `task: control` needs environment, or parquet"),
        (
            ["data={format: parquet, path: .}"],
            "task.environment: this key is missing; name the environment in which the policy",
        ),
        (
            ["task={kind: control, environment: gymnasium:CartPole-v1}"],
            "task.environment: data.path already names the environment; remove this key",
        ),
        (["model.kind=tabular"], "model.kind: found 'tabular'; `task: control` needs dqn"),
        (
            ["model.filters=[3]"],
            ("model.filters: `task: control` does not read this key; the task reads only"),
        ),
        (["model.hidden_units=[]"], "model.hidden_units: found no layer, but model.dueling needs"),
        (
            ["train.loop=custom"],
            ("train.loop: `task: control` does not read this key; the task reads only steps,"),
        ),
        (
            ["train.strategy=parameter_server"],
            "train.strategy: found parameter_server; `task: control` trains in one process; set",
        ),
        (["train.learning_rate={schedule: cosine, initial: 1}"], "`task: control` needs a number"),
        (["task={kind: control, target: {every: 9, polyak: 0.1}}"], "found both every and polyak"),
        (["evaluate.thresholds={accuracy: {min: 1}}"], "`task: control` has no metric 'accuracy'"),
        (["train.batch_size={global: 64}"], "found a mapping; `task: control` needs a number"),
        (
            ["data.splits={train: 1, eval: 1}"],
            "data.splits: `task: control` does not read this key",
        ),
        (["schedule.warm_start=true"], "schedule.warm_start: `task: control` always trains from"),
        (["name=off"], "name: found False; expected a valid string; quote the value, as"),
        (["name=1e3"], "name: found 1000.0; expected a valid string; quote the value, as"),
    ],
)
def test_what_a_task_of_control_does_not_know_is_refused(changed: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(CARTPOLE, changed)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"model": {"kind": "dqn"}},
            "model.kind: found 'dqn', which is only for `task: control`",
        ),
        (
            {"model": {"kind": "mlp", "n_step": 2}},
            "model.n_step: `model: mlp` does not read this key; remove it, or use dqn",
        ),
    ],
)
def test_what_is_of_control_alone_is_refused_elsewhere(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    config = {"name": "table", "data": {"format": "csv", "path": "."}, "task": "binary"}
    (tmp_path / "table.yaml").write_text(json.dumps(config | changed))
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "table.yaml")
    assert said in str(raised.value)


def test_an_environment_is_no_path_on_a_cluster() -> None:
    kubeflow = "{image: a.example.com/b:1, pipeline_root: gs://bucket/root}"
    load_for_kubeflow(
        CARTPOLE, [f"kubeflow={kubeflow}", "metadata=mysql://u@db/meta", "push.directory=gs://b/p"]
    )


def code_of_nodes(changed: list[str], output: Path) -> dict[str, str]:
    """By component, the hash of the code that a family's components run."""
    config, layout = load_config(CARTPOLE, changed), Layout(output, "cartpole")
    context = RunContext(config, layout, locate_data(config.data, layout))
    told = {
        node.id: node.exec_properties.get("custom_config")
        for node in create_pipeline(context).components
    }
    read = {name: json.loads(of) if isinstance(of, str) else of for name, of in told.items()}
    return {name: of[CODE_KEY] for name, of in read.items() if of and CODE_KEY in of}


@pytest.mark.parametrize(
    "named",
    [
        ["data.path=own_room.make"],
        ["data={format: parquet, path: .}", "task={kind: control, environment: own_room.make}"],
    ],
)
def test_an_environment_of_ones_own_is_in_the_cache_key_of_all_that_act_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs.parquet").touch()
    with pytest.raises(ConfigError, match=r"found 'own_room\.make'; there is no module `own_room`"):
        load_config(CARTPOLE, named)
    (tmp_path / "own_room.py").write_text("def make(): ...\n")
    before = code_of_nodes(named, tmp_path)
    assert before.keys() == {"Trainer", "Evaluator", "InfraValidator"}
    assert code_of_nodes(named, tmp_path) == before
    (tmp_path / "own_room.py").write_text("def make(): return 1\n")
    after = code_of_nodes(named, tmp_path)
    assert [name for name in before if after[name] == before[name]] == []
