"""The main function of a Trainer's worker process, which a launcher starts."""

from __future__ import annotations

import importlib
import json
import logging
import os
import socket
import sys
import time
from types import SimpleNamespace
from typing import Any

from components.processes.ports import is_free
from components.processes.server import serve
from components.processes.worker import Channel, forward_progress
from trainer_module.errors import ConfigError
from trainer_module.runtime import WorkerContext
from trainer_module.settings import TrainerSettings
from trainer_module.strategies.network import keep_port_local
from trainer_module.tf_config import VARIABLE, TFConfig, read_tf_config

_POLL_SECONDS = 0.5
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Calls `run_fn`, or serves the chief of a cluster until the process is killed."""
    _set_up_logging(channel)
    if config := payload.get("tf_config"):
        os.environ[VARIABLE] = json.dumps(config)
    if payload.get("serve"):
        cluster, task = payload["tf_config"]["cluster"], payload["tf_config"]["task"]
        config = TFConfig(cluster, task["type"], task["index"])
        serve(config, payload["model"], lambda: channel.send("ready"))
        return
    arguments = _prepare(payload)
    module, _, function = payload["run_fn"].rpartition(".")
    run_fn = getattr(importlib.import_module(module), function)
    run_fn(arguments)


def _prepare(payload: dict[str, Any]) -> Any:
    """Prepares this process for its cluster, and returns the argument of `run_fn`."""
    if address := payload.get("check_address"):
        check_own_address(address)
    if config := read_tf_config(os.environ):
        await_names(config)
    runtime = WorkerContext.model_validate({**payload["runtime"], "restarts": payload["restarts"]})
    arguments = _make_arguments(payload["arguments"], runtime)
    if _has_user_run_fn(payload["arguments"]):
        # A user's `run_fn` may create its strategy by TensorFlow directly.
        keep_port_local(config)
    return arguments


def _make_arguments(values: dict[str, Any], runtime: WorkerContext) -> Any:
    """Returns the argument of `run_fn`.

    The project's own `run_fn` needs no FnArgs, so the process does not import TFX.
    """
    if _has_user_run_fn(values):
        return _user_arguments(runtime, values)
    return SimpleNamespace(**values, runtime=runtime)


def _user_arguments(runtime: WorkerContext, values: dict[str, Any]) -> Any:
    """Returns TFX's FnArgs for a user's `run_fn`, with an additional `runtime`.

    Args:
      values: the JSON values of TFX's FnArgs; the data accessor cannot be JSON.
    """
    from tfx.components.trainer.fn_args_utils import DataAccessor, FnArgs
    from tfx.components.util import examples_utils, tfxio_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts

    examples = standard_artifacts.Examples()
    # Transform writes this format.
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
    source = [examples], ["Trainer"]
    accessor = DataAccessor(
        tf_dataset_factory=tfxio_utils.get_tf_dataset_factory_from_artifact(*source),
        record_batch_factory=tfxio_utils.get_record_batch_factory_from_artifact(*source),
        data_view_decode_fn=None,
    )
    fn_args = FnArgs(**values, data_accessor=accessor)
    fn_args.runtime = runtime
    return fn_args


def _has_user_run_fn(arguments: dict[str, Any]) -> bool:
    """Returns whether the config names a `run_fn` of the user (`train.run_fn`)."""
    return TrainerSettings.from_custom_config(arguments["custom_config"]).train.run_fn is not None


def _set_up_logging(channel: Channel) -> None:
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    forward_progress(channel)


def check_own_address(address: str) -> None:
    """Checks that the address of this process is free.

    TensorFlow's own error would not contain the address.

    Raises:
      ConfigError: another process uses the address.
    """
    port = int(address.rpartition(":")[2])
    if not is_free(port):
        raise ConfigError(
            f"another process uses {address}, the address of this task in TF_CONFIG; stop that "
            "process, or give this task another port in the TF_CONFIG of every task."
        )


def await_names(tf_config: TFConfig) -> None:
    """Waits until the host names of all peers can be resolved.

    The host names of new pods cannot be resolved at first, and gRPC would wait for minutes after a
    few failed attempts. The supervisor limits the time.
    """
    hosts = {address.rpartition(":")[0].strip("[]") for _, address in tf_config.peers}
    while hosts:
        hosts = {host for host in hosts if not _is_resolvable(host)}
        if hosts:
            time.sleep(_POLL_SECONDS)


def _is_resolvable(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
