"""Persistent clusters for notebooks, which `local_runner.py cluster start` starts."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf
import tf_keras

from trainer_module.errors import ConfigError
from trainer_module.strategies import parameter_server
from trainer_module.strategies.base import Strategy
from trainer_module.strategies.network import LOCALHOST, kept_local
from trainer_module.tf_config import VARIABLE, TFConfig, read_tf_config, task_name
from trainer_module.typed_words import typed_program

CLUSTER_VARIABLE = "SCOPELINE_CLUSTER"
"""The environment variable with the path of the cluster's file, the default of `connect`."""
DEFAULT_FILE = "output/cluster/cluster.json"
PROBE_SECONDS = 5.0
"""The timeout in seconds for an address that does not answer; TensorFlow would wait forever."""

_SERVERS = ("worker", "ps")
_PROXY_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")

_CONNECTED: dict[str, tf.distribute.ParameterServerStrategy] = {}


def connect(path: str | Path | None = None) -> tf.distribute.ParameterServerStrategy:
    """Makes this process the coordinator of a persistent cluster.

    Build and compile models in the scope of the strategy. Repeated calls, for example from a
    notebook cell that runs twice, return the same strategy.

    Args:
      path: the cluster's file; by default the path in SCOPELINE_CLUSTER, or
        output/cluster/cluster.json if that variable is not set.

    Raises:
      ConfigError: the file is missing or invalid, a server does not answer, or Keras is not the
        version that works with parameter servers.
    """
    _check_keras()
    file = Path(path or os.environ.get(CLUSTER_VARIABLE) or DEFAULT_FILE)
    cluster = _read(file)
    _check_answers(file, cluster)
    key = repr(cluster)
    if key not in _CONNECTED:
        _prepare_grpc()
        settings = parameter_server.ParameterServerStrategy(kind=Strategy.PARAMETER_SERVER)
        # The chief's address in the file may be in use by a run.
        with socket.create_server(("", 0)) as probe:
            addresses = {"chief": [f"{LOCALHOST}:{probe.getsockname()[1]}"], **cluster}
        with kept_local(TFConfig(addresses, "chief", 0)):
            _CONNECTED[key] = parameter_server.connect(settings, addresses)
    return _CONNECTED[key]


def _check_keras() -> None:
    """Checks that `tensorflow.keras` is tf_keras for each way of importing it."""
    imported = importlib.import_module("tensorflow.keras")
    if imported.Model is tf_keras.Model and tf.keras.Model is tf_keras.Model:
        return
    raise ConfigError(
        "tensorflow.keras is Keras 3 in this process, and Keras 3 cannot train with parameter "
        f"servers: TF_USE_LEGACY_KERAS is {os.environ.get('TF_USE_LEGACY_KERAS', 'unset')}, or was "
        "set after TensorFlow had been imported; restart the kernel, and set "
        'os.environ["TF_USE_LEGACY_KERAS"] = "1" in the first cell, before all imports.'
    )


def _cluster(verb: str) -> str:
    return f"`{typed_program()} cluster {verb}`"


def _read(file: Path) -> dict[str, list[str]]:
    """Returns the addresses of a cluster's workers and parameter servers."""
    try:
        # The file contains the keys of TF_CONFIG, and more.
        config = read_tf_config({VARIABLE: file.read_text()})
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {file} (looked for in {Path.cwd()}); start a cluster with "
            f"{_cluster('start')}, or pass the path of its file to connect, or set "
            f"{CLUSTER_VARIABLE} to the path."
        ) from None
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        problem = str(error).partition(";")[0].replace(VARIABLE, "its content")
        raise ConfigError(
            f"{file} is not the file of a cluster: {problem}; {_cluster('start')} writes a valid "
            "file."
        ) from None
    cluster = {kind: config.cluster[kind] for kind in _SERVERS if config and kind in config.cluster}
    if len(cluster) < len(_SERVERS):
        found = ", ".join(cluster) or "no servers"
        raise ConfigError(
            f"{file} is not the file of a persistent cluster: it names {found}, but `worker` and "
            f"`ps` are needed; {_cluster('start')} writes a valid file."
        )
    return cluster


def _check_answers(file: Path, cluster: Mapping[str, Sequence[str]]) -> None:
    missing = [
        f"{task_name(kind, index)} at {address}"
        for kind, addresses in cluster.items()
        for index, address in enumerate(addresses)
        if not _answers(address)
    ]
    if missing:
        raise ConfigError(
            f"no answer from {', '.join(missing)}, of the cluster in {file}; restart the cluster: "
            f"{_cluster('stop')}, then {_cluster('start')}."
        )


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def _prepare_grpc() -> None:
    # Without this variable, the coordinator waits forever for a lost worker.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    # Without this variable, gRPC may connect to this machine through a proxy.
    grpc_variable, general_variable = _PROXY_EXCEPTIONS
    hosts = os.environ.get(grpc_variable) or os.environ.get(general_variable)
    os.environ[grpc_variable] = f"{hosts},{LOCALHOST}" if hosts else LOCALHOST
