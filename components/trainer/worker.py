"""One worker of a training, which a launcher starts."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

from components.processes.server import serve
from components.processes.worker import Channel
from components.trainer.joining import await_names, check_own_address
from trainer_module.runtime import PROGRESS_LOGGER, Runtime
from trainer_module.settings import TrainerSettings
from trainer_module.strategies.network import keep_port_local
from trainer_module.tf_config import VARIABLE, TFConfig, read_tf_config

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Reports(logging.Handler):
    """Sends on what the trainer reports of its progress."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        """Turns a record into an event."""
        values = {name: getattr(record, name, "") for name in ("done", "total", "unit", "detail")}
        if getattr(record, "ready", False):
            self._channel.send("ready")
        elif values["total"]:
            self._channel.send("progress", **values)


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Calls `run_fn`, or serves a cluster's chief until it is killed."""
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
    """What `run_fn` is called with, once the cluster that this process joins is known to it."""
    if address := payload.get("check_address"):
        check_own_address(address)
    if config := read_tf_config(os.environ):
        await_names(config)
    runtime = Runtime.model_validate({**payload["runtime"], "restarts": payload["restarts"]})
    arguments = _make_arguments(payload["arguments"], runtime)
    if _is_own(payload["arguments"]):
        # It may build its strategy by TensorFlow alone.
        keep_port_local(config)
    return arguments


def _make_arguments(plain: dict[str, Any], runtime: Runtime) -> Any:
    """What `run_fn` takes: ours needs no more than plain values, and so no TFX."""
    if not _is_own(plain):
        return SimpleNamespace(**plain, runtime=runtime)
    from components.trainer.own_run_fn import make_fn_args

    return make_fn_args(plain, runtime)


def _is_own(arguments: dict[str, Any]) -> bool:
    """Whether the `run_fn` that takes these is the user's."""
    return TrainerSettings.from_custom_config(arguments["custom_config"]).train.run_fn is not None


def _set_up_logging(channel: Channel) -> None:
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    progress = logging.getLogger(PROGRESS_LOGGER)
    progress.addHandler(_Reports(channel))
    # The process that gets the events logs them.
    progress.propagate = False
