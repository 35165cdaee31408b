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

CLUSTER_VARIABLE = "SCOPELINE_CLUSTER"
"""The environment variable of the path of the cluster's file, if the code does not give it."""
DEFAULT_FILE = "output/cluster/cluster.json"
PROBE_SECONDS = 5.0
"""The timeout for an address that does not answer, at which TensorFlow would wait forever."""

_SERVERS = ("worker", "ps")
_PROXY_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
_START = "`python local_runner.py cluster start`"
_RESTART = f"`python local_runner.py cluster stop`, then {_START}"

_CONNECTED: dict[str, tf.distribute.ParameterServerStrategy] = {}


def connect(path: str | Path | None = None) -> tf.distribute.ParameterServerStrategy:
    """Makes this process the coordinator of a persistent cluster.

    Models are then built and compiled in the strategy's scope. Repeated calls, as from a notebook's
    cell that runs twice, return the same strategy.

    Args:
      path: the cluster's file; default: the path in SCOPELINE_CLUSTER, or else
        output/cluster/cluster.json.

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
            places = {"chief": [f"{LOCALHOST}:{probe.getsockname()[1]}"], **cluster}
        with kept_local(TFConfig(places, "chief", 0)):
            _CONNECTED[key] = parameter_server.connect(settings, places)
    return _CONNECTED[key]


def _check_keras() -> None:
    """Checks that `tensorflow.keras` is tf_keras, however it is imported."""
    imported = importlib.import_module("tensorflow.keras")
    if imported.Model is tf_keras.Model and tf.keras.Model is tf_keras.Model:
        return
    raise ConfigError(
        "tensorflow.keras is Keras 3 in this process, which cannot train with parameter servers: "
        f"TF_USE_LEGACY_KERAS is {os.environ.get('TF_USE_LEGACY_KERAS', 'unset')} or was set "
        "after TensorFlow had been imported; restart the kernel, and set "
        'os.environ["TF_USE_LEGACY_KERAS"] = "1" in the first cell, before all imports.'
    )


def _read(file: Path) -> dict[str, list[str]]:
    """Returns the addresses of a cluster's workers and parameter servers."""
    try:
        # The file contains the keys of TF_CONFIG, and more.
        config = read_tf_config({VARIABLE: file.read_text()})
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {file} (looked for in {Path.cwd()}); start a cluster with {_START}, or "
            f"name its file here or in {CLUSTER_VARIABLE}."
        ) from None
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        found = str(error).partition(";")[0].replace(VARIABLE, "it")
        raise ConfigError(
            f"{file} is not a cluster's file: {found}; {_START} writes one."
        ) from None
    cluster = {kind: config.cluster[kind] for kind in _SERVERS if config and kind in config.cluster}
    if len(cluster) < len(_SERVERS):
        found = ", ".join(cluster) or "no servers"
        raise ConfigError(
            f"{file} is not a file of a standing cluster: it names {found}, but `worker` and `ps` "
            f"are needed; {_START} writes one."
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
            f"no answer from {', '.join(missing)}, of the cluster in {file}; start it again: "
            f"{_RESTART}."
        )


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def _prepare_grpc() -> None:
    # Without it the coordinator waits forever for a lost worker.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    # Without it gRPC connects to this machine through a proxy.
    own, general = _PROXY_EXCEPTIONS
    direct = os.environ.get(own) or os.environ.get(general)
    os.environ[own] = f"{direct},{LOCALHOST}" if direct else LOCALHOST
