"""Standing clusters, for notebooks: connects to what `local_runner.py cluster start` started."""

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
"""The environment variable that names the cluster's file where the code does not."""
DEFAULT_FILE = "output/cluster/cluster.json"
PROBE_SECONDS = 5.0
"""TensorFlow would wait for ever at an address that does not answer."""

_SERVERS = ("worker", "ps")
_PROXY_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
_START = "`python local_runner.py cluster start`"
_RESTART = f"`python local_runner.py cluster stop`, then {_START}"

_CONNECTED: dict[str, tf.distribute.ParameterServerStrategy] = {}


def connect(path: str | Path | None = None) -> tf.distribute.ParameterServerStrategy:
    """Makes this process the coordinator of a standing cluster.

    Models are then built and compiled in the strategy's scope. The same strategy is returned when
    it is asked for again, as a notebook does whose cells run twice.

    Args:
      path: the cluster's file; default: what SCOPELINE_CLUSTER names, or else
          output/cluster/cluster.json.

    Raises:
      ConfigError: there is no such file, it is no cluster's, a server does not answer, or Keras
          is not the one that works with parameter servers.
    """
    _check_keras()
    file = Path(path or os.environ.get(CLUSTER_VARIABLE) or DEFAULT_FILE)
    cluster = _read(file)
    _check_answers(file, cluster)
    key = repr(cluster)
    if key not in _CONNECTED:
        _prepare_grpc()
        settings = parameter_server.ParameterServerStrategy(kind=Strategy.PARAMETER_SERVER)
        # Not the chief's address in the file: a run may have that.
        with socket.create_server(("", 0)) as probe:
            places = {"chief": [f"{LOCALHOST}:{probe.getsockname()[1]}"], **cluster}
        with kept_local(TFConfig(places, "chief", 0)):
            _CONNECTED[key] = parameter_server.connect(settings, places)
    return _CONNECTED[key]


def _check_keras() -> None:
    """Checks that `tensorflow.keras` is tf_keras, whichever way it is imported."""
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
        # The file is what TF_CONFIG would hold, and more.
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
    # Else the coordinator would wait for ever for a worker that was lost.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    # Else gRPC would ask a proxy for the way to this machine.
    own, general = _PROXY_EXCEPTIONS
    direct = os.environ.get(own) or os.environ.get(general)
    os.environ[own] = f"{direct},{LOCALHOST}" if direct else LOCALHOST
