"""What a run resolves for its Trainer, and how the executor finds it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.column_types.choice import Choice
from components.trainer.options import OPTIONS_VARIABLE, TrainerOptions
from pipeline.config.settings import PipelineConfig
from pipeline.runs.training import model_note, prepare_training
from trainer_module.errors import ConfigError
from trainer_module.settings import Strategy, TrainSettings
from trainer_module.strategies.devices import count_gpus

ADDRESSES = {"worker": ["a:1", "b:2"]}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv(OPTIONS_VARIABLE, "")


def test_executor_finds_the_strategy_and_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"cluster": ADDRESSES, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(place))
    train = {"strategy": "auto", "retries": 7, "cluster": {"start_timeout": 9}, "backup_steps": 5}
    prepare_training(TrainSettings.model_validate(train), backup_scope="run")
    options = TrainerOptions.from_environment()
    assert options.choice is not None
    assert options.choice.strategy.kind is Strategy.MULTI_WORKER_MIRRORED
    assert options.choice.reason == "TF_CONFIG names 2 workers"
    assert (options.retries, options.start_timeout, options.backup_steps) == (7, 9, 5)
    assert (options.launcher, options.pods, options.backup_scope) == ("local", None, "run")


# Found here, they cost no run of the data components.
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"kind": "one_device", "device": "gpu:7"}, "names gpu:7"),
        ({"kind": "mirrored", "devices": ["cpu:0", "cpu:1"], "reduction": "nccl"}, "on cpu:0, cpu"),
        ({"kind": "tpu", "name": "local"}, "the TPU is 'local', but this machine has none"),
    ],
)
def test_device_that_is_not_there_is_refused(strategy: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare_training(TrainSettings.model_validate({"strategy": strategy}))


@pytest.mark.skipif(count_gpus() > 0, reason="says what a machine without a GPU says")
@pytest.mark.parametrize("kind", ["mirrored", "multi_worker_mirrored"])
def test_nccl_without_a_gpu_is_refused(kind: str) -> None:
    key = "reduction" if kind == "mirrored" else "communication"
    with pytest.raises(ConfigError, match=f"train.strategy.{key}: nccl needs "):
        prepare_training(TrainSettings.model_validate({"strategy": {"kind": kind, key: "nccl"}}))


IMAGE = {"image": {"type": "image", "height": 8, "width": 8}}


def test_model_kind_follows_from_inferred_columns() -> None:
    data = {"format": "csv", "path": "trips.csv", "label": "tip"}
    config = PipelineConfig.model_validate({"name": "trips", "task": "binary", "data": data})
    columns = {"id": Choice({"type": "ignore"}, ""), "image": Choice(IMAGE["image"], "")}
    assert model_note(config, columns) == ["model: convnet, as a feature is an image"]
    columns["image"] = Choice({"type": "text"}, "")
    assert model_note(config, columns) == ["model: ensemble, as no feature is an image"]
