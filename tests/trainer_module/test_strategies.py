"""Which strategy is built, and what is said where it cannot be."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
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
without_gpu = pytest.mark.skipif(HAS_GPU, reason="says what a machine without a GPU says")


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


def test_options_reach_tensorflow() -> None:
    """In a process of its own: two mirrored strategies collide."""
    code = """
import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"
from tensorflow import config
from trainer_module.settings import TrainSettings
from trainer_module.strategies import build_strategy, devices as our_devices
threads = config.threading.get_intra_op_parallelism_threads
for cores, variable in ((3, ""), (2, "5"), (2, "")):
    our_devices.count_cores = lambda: cores
    os.environ.pop("TF_NUM_INTRAOP_THREADS", None)
    if variable: os.environ["TF_NUM_INTRAOP_THREADS"] = variable
    our_devices.use_single_threads()
    print(threads())
devices = ["cpu:0", "cpu:1", "cpu:2"]
options = {"kind": "mirrored", "devices": devices, "reduction": "hierarchical_copy"}
built = build_strategy(TrainSettings.model_validate({"strategy": options}).strategy)
print(built.num_replicas_in_sync, type(built.extended._cross_device_ops).__name__)
our_devices.use_single_threads()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "0", "1", "3", "HierarchicalCopyAllReduce"], done.stderr
    assert not done.returncode, "the last call comes after TensorFlow's start"


@without_gpu
@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "one_device", "device": "gpu:0"},
        {"kind": "mirrored", "devices": ["cpu:0", "gpu:0"]},
        {"kind": "central_storage", "devices": ["gpu:0"]},
    ],
)
def test_a_gpu_where_there_is_none(strategy: Any) -> None:
    message = "train.strategy names gpu:0, but TensorFlow finds no GPU on this machine"
    with pytest.raises(ConfigError, match=message):
        strategy_settings(strategy).check()


@without_gpu
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"kind": "mirrored", "reduction": "nccl"}, "reduction: nccl needs GPUs, but the replicas"),
        (
            {"kind": "multi_worker_mirrored", "communication": "nccl"},
            "communication: nccl needs a GPU on every worker, but this worker has",
        ),
    ],
)
def test_nccl_without_gpus(strategy: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_strategy(strategy_settings(strategy))


def test_a_device_named_twice() -> None:
    strategy = {"kind": "mirrored", "devices": ["cpu:0", "cpu:0"]}
    with pytest.raises(ConfigError, match="names a device twice: cpu:0, cpu:0"):
        strategy_settings(strategy).check()


def test_more_cpus_than_tensorflow_has_begun_with() -> None:
    tf.config.list_logical_devices()
    with pytest.raises(
        ConfigError, match=r"names cpu:7, but TensorFlow has already started with /cpu:0"
    ):
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


def test_what_the_config_names_is_taken() -> None:
    assert choose(strategy="mirrored") == ("mirrored", "")


def test_auto_has_to_be_resolved() -> None:
    with pytest.raises(ValueError, match="strategy auto must be resolved first"):
        build_strategy(strategy_settings(Strategy.AUTO))


def test_no_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_NAME", raising=False)
    message = (
        "strategy tpu: the config names no TPU and this machine has none; set train.strategy to"
    )
    with pytest.raises(ConfigError, match=message):
        strategy_settings("tpu").check()


def test_a_tpu_that_google_cloud_does_not_know() -> None:
    began = time.monotonic()
    with pytest.raises(
        ConfigError, match=r"strategy tpu: TPU 'no-such-tpu' cannot be used \(.+\); set"
    ):
        build_strategy(strategy_settings({"kind": "tpu", "name": "no-such-tpu"}))
    assert time.monotonic() - began < 60


def test_a_tpu_address_that_does_not_answer() -> None:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConfigError, match=rf"nothing answers at grpc://localhost:{port} \(Conn"):
        strategy_settings({"kind": "tpu", "name": f"grpc://localhost:{port}"}).check()


def test_a_tpu_address_without_a_port() -> None:
    with pytest.raises(
        ConfigError, match="found 'grpc://host' as the TPU's address; expected grpc://"
    ):
        strategy_settings({"kind": "tpu", "name": "grpc://host"}).check()


def test_sharded_weights_begin_like_those_of_one_device() -> None:
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
    message = "there is no device TPU:0; the number of TPU devices is 0"
    with pytest.raises(ConfigError, match=message), on_device():
        pass
