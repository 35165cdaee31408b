"""What Transform and Trainer are told changes with the files that they read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.graph.cache_keys import Recipe
from pipeline.own_modules import ROOT

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


def keys_of(config: PipelineConfig) -> tuple[dict[str, object], dict[str, object]]:
    recipe = Recipe.of(config)
    return recipe.transform_config, recipe.trainer_config


def test_a_vocabulary_that_changes_is_noticed_by_transform(bert: Path, tmp_path: Path) -> None:
    text = {"type": "text", "tokens": "wordpiece", "vocabulary": str(bert), "max_tokens": 8}
    config = config_of(tmp_path, features={"company": text})
    before = keys_of(config)
    (bert / "vocab.txt").write_text((bert / "vocab.txt").read_text() + "anew\n")
    after = keys_of(config)
    assert after[0] != before[0]
    assert after[1] == before[1]  # It reads what Transform has made of it.


def test_weights_that_change_are_noticed_by_trainer_alone(bert: Path, tmp_path: Path) -> None:
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
