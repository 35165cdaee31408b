"""Cache keys: each setting, and each file, changes the keys of the components that read it."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import locate_data
from pipeline.graph.cache_keys import Recipe
from pipeline.layout import Layout
from pipeline.own_modules import ROOT
from pipeline.run_context import RunContext

KeysOf = Callable[..., dict[str, dict[str, Any]]]
BERT = ROOT / "tests" / "trainer_module" / "models" / "data" / "bert"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A copy of the reference, to change."""
    return shutil.copytree(BERT, tmp_path / "bert")


def config_of(folder: Path, **sections: Any) -> PipelineConfig:
    text: dict[str, Any] = {
        "name": "keys",
        "data": {"format": "csv", "path": "builtin:taxi", "label": "big_tipper"},
        "task": "binary",
    }
    path = folder / "keys.yaml"
    path.write_text(yaml.safe_dump(text | sections))
    return load_config(path)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeysOf:
    """The settings in the cache key of each component, of a config with a section."""
    from pipeline.graph.create import create_pipeline

    folder = tmp_path_factory.mktemp("keys")
    path = folder / "sizes.csv"
    path.write_text("size,side,at,label\n1.5,n,2026-01-01,0\n2.5,s,2026-01-02,1\n")

    @functools.cache
    def find(section: str = "", text: str = "") -> dict[str, dict[str, Any]]:
        sections = {section: json.loads(text)} if section else {}
        data = {"format": "csv", "path": str(path), "label": "label", **sections.pop("data", {})}
        config = PipelineConfig.model_validate(
            {"name": "keys", "task": "binary", "model": {"kind": "mlp"}, "data": data} | sections
        )
        layout = Layout.of(config.name, config.push, folder / "output")
        context = RunContext(config, layout, locate_data(config.data, layout))
        nodes = create_pipeline(context).components
        return {node.id: dict(getattr(node, "exec_properties", {})) for node in nodes}

    find()
    return find


TRAINS = {"Trainer", "InfraValidator"}
"""InfraValidator compares the model with the one of the training code."""
TABLE = {"ExampleGen", "SchemaGen", "ExampleValidator", "Transform", "Evaluator"}
ALL = {*TABLE, *TRAINS, "StatisticsGen"}
READERS: list[tuple[str, Any, set[str]]] = [
    ("data", {"splits": {"train": 3, "eval": 1}}, {"ExampleGen"}),
    ("data", {"stratify": True}, {"ExampleGen"}),
    ("data", {"csv": {"missing_values": ["?"]}}, {"ExampleGen"}),
    ("data", {"unlabelled": "skip"}, {"ExampleGen"}),
    ("data", {"split_by": "side"}, TABLE),
    ("data", {"order_by": "at"}, TABLE),
    ("data", {"weight": "size"}, TABLE | TRAINS),
    ("data", {"label": "side"}, ALL),
    ("task", "regression", ALL),
    ("features", {"size": {"type": "categorical"}}, TABLE - {"Evaluator"} | TRAINS),
    ("on_anomaly", "warn", {"ExampleValidator"}),
    ("model", {"kind": "linear"}, TRAINS),
    ("model", {"kind": "mlp", "hidden_units": [3]}, TRAINS),
    ("train", {"epochs": 99}, TRAINS),
    ("train", {"batch_size": 7}, TRAINS),
    ("train", {"seed": 7}, TRAINS),
    ("train", {"learning_rate": 0.5}, TRAINS),
    ("train", {"optimizer": "sgd"}, TRAINS),
    ("train", {"loss": "focal"}, TRAINS),
    ("train", {"class_weights": "balanced"}, TRAINS),
    ("train", {"strategy": "mirrored"}, TRAINS),
    ("train", {"precision": "mixed_bfloat16"}, TRAINS),
    ("train", {"loop": "custom"}, TRAINS),
    ("train", {"early_stopping": {"patience": 9}}, TRAINS),
    ("optimize", {"prune": {"sparsity": 0.5}}, TRAINS),
    ("evaluate", {"folds": 3}, TRAINS),
    ("tune", {"trials": 3}, TRAINS | {"Tuner"}),
    ("evaluate", {"metrics": ["auc"]}, {"Evaluator"}),
    ("evaluate", {"thresholds": {"auc": {"min": 0.7}}}, {"Evaluator"}),
    ("evaluate", {"confidence": 0.9}, {"Evaluator"}),
    ("evaluate", {"ties": "newest"}, {"Evaluator"}),
    ("evaluate", {"slices": ["side"]}, {"Evaluator", "ExampleValidator"}),
    ("certificate", {"tolerance": 0.1}, {"InfraValidator"}),
    ("optimize", {"variants": ["int8"]}, {"Optimizer"}),
    ("push", {"directory": "/elsewhere"}, {"Pusher"}),
    ("train", {"retries": 9}, set()),
    ("beam", {"workers": 2}, set()),
    ("notify", {"occasions": ["failed"]}, set()),
]


@pytest.mark.parametrize(
    ("section", "value", "readers"), READERS, ids=[f"{s} {v}" for s, v, _ in READERS]
)
def test_setting_is_in_the_keys_of_the_components_that_read_it(
    keys: KeysOf, section: str, value: Any, readers: set[str]
) -> None:
    before, after = keys(), keys(section, json.dumps(value))
    assert {name for name in after if after[name] != before.get(name)} == readers


def keys_of(config: PipelineConfig) -> tuple[dict[str, object], dict[str, object]]:
    recipe = Recipe.of(config)
    return recipe.transform_config, recipe.trainer_config


def test_changed_vocabulary_changes_the_key_of_transform(bert: Path, tmp_path: Path) -> None:
    text = {"type": "text", "tokens": "wordpiece", "vocabulary": str(bert), "max_tokens": 8}
    config = config_of(tmp_path, features={"company": text})
    before = keys_of(config)
    (bert / "vocab.txt").write_text((bert / "vocab.txt").read_text() + "anew\n")
    after = keys_of(config)
    assert after[0] != before[0]
    assert after[1] == before[1]  # It reads what Transform has made of it.


def test_changed_weights_change_the_key_of_trainer(bert: Path, tmp_path: Path) -> None:
    config = config_of(tmp_path, model={"kind": "bert", "weights": str(bert)})
    before = keys_of(config)
    (bert / ".git").mkdir()
    (bert / ".git" / "index").write_text("Git's.")
    assert keys_of(config) == before
    weights = bytearray((bert / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (bert / "model.safetensors").write_bytes(weights)
    after = keys_of(config)
    assert after[0] == before[0]
    assert after[1] != before[1]
