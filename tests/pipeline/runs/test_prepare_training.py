"""What a run resolves for its Trainer, and how the executor finds it."""

from __future__ import annotations

import json

import pytest

from components.trainer.options import OPTIONS_VARIABLE, TrainerOptions
from pipeline.runs.training import prepare_training
from trainer_module.errors import ConfigError
from trainer_module.settings import Strategy, TrainSettings

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


def test_device_that_is_not_there_is_refused() -> None:
    strategy = {"kind": "one_device", "device": "gpu:7"}
    with pytest.raises(ConfigError, match=r"asks for gpu:7"):
        prepare_training(TrainSettings.model_validate({"strategy": strategy}))
