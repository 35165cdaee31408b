"""Strategies that are chosen and built, and those that are refused."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf

from tests.support.trainer_data import strategy_settings
from trainer_module.errors import ConfigError
from trainer_module.runtime import choose_strategy
from trainer_module.settings import Strategy, TrainSettings
from trainer_module.strategies import build_strategy
from trainer_module.strategies.tpu import on_device
from trainer_module.tf_config import TFConfig

HAS_GPU = bool(tf.config.list_physical_devices("GPU"))
without_gpu = pytest.mark.skipif(HAS_GPU, reason="there is a GPU")


@pytest.mark.parametrize(
    ("strategy", "replicas"),
    [
        ("default", 1),
        ("one_device", 1),
        ({"kind": "one_device", "device": "cpu:1"}, 1),
        ("mirrored", 2),
        ("central_storage", 2),
    ],
)
def test_strategies(strategy: Any, replicas: int) -> None:
    settings = strategy_settings(strategy)
    built = build_strategy(settings)
    assert built.num_replicas_in_sync == replicas
    assert strategy == "default" or build_strategy(settings) is built, "one object per process"


@pytest.mark.slow
def test_options_reach_tensorflow() -> None:
    """In a process of its own: two mirrored strategies collide."""
    code = """
import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"
from trainer_module.settings import TrainSettings
from trainer_module.strategies import build_strategy
devices = ["cpu:0", "cpu:1", "cpu:2"]
options = {"kind": "mirrored", "devices": devices, "reduction": "hierarchical_copy"}
built = build_strategy(TrainSettings.model_validate({"strategy": options}).strategy)
print(built.num_replicas_in_sync, type(built.extended._cross_device_ops).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["3", "HierarchicalCopyAllReduce"], done.stderr


@without_gpu
@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "one_device", "device": "gpu:0"},
        {"kind": "mirrored", "devices": ["cpu:0", "gpu:0"]},
    ],
)
def test_missing_gpu_is_named(strategy: Any) -> None:
    with pytest.raises(ConfigError, match=r"train\.strategy names gpu:0"):
        strategy_settings(strategy).check()


def test_device_named_twice_is_refused() -> None:
    strategy = {"kind": "mirrored", "devices": ["cpu:0", "cpu:0"]}
    with pytest.raises(ConfigError, match="cpu:0, cpu:0"):
        strategy_settings(strategy).check()


def test_more_cpus_than_tensorflow_has_are_refused() -> None:
    tf.config.list_logical_devices()
    with pytest.raises(ConfigError, match=r"names cpu:7"):
        build_strategy(strategy_settings({"kind": "one_device", "device": "cpu:7"}))


def choose(tf_config: TFConfig | None = None, **train: Any) -> tuple[str, str]:
    choice = choose_strategy(TrainSettings.model_validate(train), tf_config)
    return str(choice.strategy.kind), choice.reason


def test_auto_follows_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = {"worker": ["a:1", "b:1"]}
    found = choose(TFConfig(workers, "worker", 0), strategy="auto")
    assert found == ("multi_worker_mirrored", "TF_CONFIG names 2 workers")
    servers = workers | {"chief": ["c:1"], "ps": ["d:1"]}
    found = choose(TFConfig(servers, "chief", 0), strategy="auto")
    assert found == ("parameter_server", "TF_CONFIG names parameter servers")


def test_auto_follows_the_config_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_NAME", raising=False)
    found = choose(strategy="auto", cluster={"workers": 3})
    assert found == ("multi_worker_mirrored", "train.cluster has 3 workers")
    if not HAS_GPU:
        assert choose(strategy="auto") == ("default", "there is neither a GPU nor a TPU")
    monkeypatch.setenv("TPU_NAME", "mine")
    assert choose(strategy="auto") == ("tpu", "there is a TPU")


def test_configured_strategy_is_chosen() -> None:
    assert choose(strategy="mirrored") == ("mirrored", "")


def test_auto_has_to_be_resolved() -> None:
    with pytest.raises(ValueError, match="auto"):
        build_strategy(strategy_settings(Strategy.AUTO))


def test_unreachable_tpu_is_named() -> None:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConfigError, match=rf"grpc://localhost:{port}"):
        strategy_settings({"kind": "tpu", "name": f"grpc://localhost:{port}"}).check()


@pytest.mark.slow
def test_sharded_weights_have_the_initial_values_of_one_device() -> None:
    """In a process of its own, which becomes the coordinator of two servers."""
    code = """
import os, socket; os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np, tensorflow as tf, tf_keras
from trainer_module.strategies.coordinator import CopyOnCoordinator
from trainer_module.strategies.parameter_server import ParameterServerStrategy, connect
free = [socket.create_server(("localhost", 0)) for _ in range(4)]
chief, worker, *servers = (f"localhost:{opened.getsockname()[1]}" for opened in free)
for opened in free: opened.close()
cluster = {"chief": [chief], "worker": [worker], "ps": servers}
tasks = ("worker", 0), ("ps", 0), ("ps", 1)
started = [tf.distribute.Server(cluster, *task, "grpc") for task in tasks]
kind = {"kind": "parameter_server", "partitioner": "fixed_shards"}
strategy = connect(ParameterServerStrategy.model_validate(kind), cluster)
def build():
    layers = tf_keras.layers
    network = layers.Embedding(7, 3), layers.Flatten(), layers.BatchNormalization(), layers.Dense(5)
    return tf_keras.Sequential([tf_keras.Input([4], dtype=tf.int64), *network])
evaluator = CopyOnCoordinator(build(), list)
expected = evaluator.copy.get_weights()
with strategy.scope(): model = build()
evaluator.initialize(model)
evaluator.copy.set_weights([np.zeros_like(values) for values in expected])
evaluator.set_model(model)
print(len(expected), len(model.weights))
for found, values in zip(evaluator.fetch().get_weights(), expected, strict=True):
    np.testing.assert_array_equal(found, values)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["7", "14"], done.stderr


def test_manual_placement() -> None:
    with on_device(1, "CPU"):
        assert tf.constant(1).device.endswith("CPU:1")
    with pytest.raises(ConfigError, match="TPU:0"), on_device():
        pass
