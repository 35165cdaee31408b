"""Configs of `task: control` are checked before a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.loading import load_config
from pipeline.config.user_code import CODE_KEY
from pipeline.data.files import locate_data
from pipeline.graph.create import create_pipeline
from pipeline.layout import Layout
from pipeline.run_context import RunContext
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[3]
CARTPOLE = ROOT / "configs" / "cartpole.yaml"


def test_shipped_control_config_is_valid() -> None:
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
    ("changed", "shown"),
    [
        (["data.path=gymnasium:Pendulum-v1"], "data.path: the environment 'gymnasium:Pendulum-v1'"),
        (
            ["train.steps=800"],
            "train.steps: found 800",
        ),
        (["data.format=csv"], "found 'csv'; `task: control` needs environment, or parquet"),
        (["model.hidden_units=[]"], "model.hidden_units: "),
    ],
)
def test_invalid_control_config_is_refused_at_its_key(changed: list[str], shown: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(CARTPOLE, changed)
    assert shown in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        (
            {"model": {"kind": "dqn"}},
            "model.kind: found 'dqn'",
        ),
        (
            {"model": {"kind": "mlp", "n_step": 2}},
            "model.n_step: ",
        ),
    ],
)
def test_control_keys_are_refused_for_other_tasks(
    tmp_path: Path, changed: dict[str, Any], shown: str
) -> None:
    config = {"name": "table", "data": {"format": "csv", "path": "."}, "task": "binary"}
    (tmp_path / "table.yaml").write_text(json.dumps(config | changed))
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "table.yaml")
    assert shown in str(raised.value)


def code_of_nodes(changed: list[str], output: Path) -> dict[str, str]:
    """By component, the hash of the code that a family's components run."""
    config, layout = load_config(CARTPOLE, changed), Layout(output, "cartpole")
    context = RunContext(config, layout, locate_data(config.data, layout))
    found = {
        node.id: node.exec_properties.get("custom_config")
        for node in create_pipeline(context).components
    }
    read = {name: json.loads(of) if isinstance(of, str) else of for name, of in found.items()}
    return {name: of[CODE_KEY] for name, of in read.items() if of and CODE_KEY in of}


@pytest.mark.parametrize(
    "named",
    [
        ["data.path=own_room.make"],
        ["data={format: parquet, path: .}", "task={kind: control, environment: own_room.make}"],
    ],
)
@pytest.mark.usefixtures("followed_imports")
def test_own_environment_is_in_the_cache_keys_of_components_that_act_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs.parquet").touch()
    with pytest.raises(ConfigError, match=r"found 'own_room\.make'"):
        load_config(CARTPOLE, named)
    (tmp_path / "own_room.py").write_text("def make(): ...\n")
    before = code_of_nodes(named, tmp_path)
    assert before.keys() == {"Trainer", "Evaluator", "InfraValidator"}
    assert code_of_nodes(named, tmp_path) == before
    (tmp_path / "own_room.py").write_text("def make(): return 1\n")
    after = code_of_nodes(named, tmp_path)
    assert [name for name in before if after[name] == before[name]] == []
