"""The runtime of a training process: its context, its log lines and its record.

TFX's cache key does not include the context.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from trainer_module.errors import counted
from trainer_module.settings import (
    DefaultStrategy,
    MirroredStrategy,
    Settings,
    Strategy,
    TrainerSettings,
    TrainSettings,
)
from trainer_module.settings.train import StrategySettings
from trainer_module.strategies.base import BaseStrategy
from trainer_module.strategies.parameter_server import ParameterServerStrategy
from trainer_module.strategies.synchronous import MultiWorkerMirroredStrategy, OneDeviceStrategy
from trainer_module.strategies.tpu import TPUStrategy
from trainer_module.tf_config import TFConfig


def choose_strategy(train: TrainSettings, tf_config: TFConfig | None) -> StrategyChoice:
    """Returns the configured strategy; for `auto`, the strategy that fits the cluster and the
    machine.

    The first condition that holds decides: TF_CONFIG describes a cluster; `train.cluster` has
    several workers; the machine has a TPU; the machine has several GPUs; the machine has one GPU.

    Args:
      train: the settings of the training.
      tf_config: the cluster that TF_CONFIG describes, if any.
    """
    if train.strategy.kind is not Strategy.AUTO:
        return StrategyChoice(strategy=train.strategy)
    if tf_config is not None:
        if tf_config.has_parameter_servers:
            servers = ParameterServerStrategy(kind=Strategy.PARAMETER_SERVER)
            return _choice(servers, "TF_CONFIG names parameter servers")
        workers = MultiWorkerMirroredStrategy(kind=Strategy.MULTI_WORKER_MIRRORED)
        return _choice(workers, f"TF_CONFIG names {counted(tf_config.workers, 'worker')}")
    if train.cluster is not None and train.cluster.workers > 1:
        workers = MultiWorkerMirroredStrategy(kind=Strategy.MULTI_WORKER_MIRRORED)
        return _choice(workers, f"train.cluster has {counted(train.cluster.workers, 'worker')}")
    return _choose_by_machine()


def _choose_by_machine() -> StrategyChoice:
    from trainer_module.strategies import devices, tpu

    if tpu.has_tpu():
        return _choice(TPUStrategy(kind=Strategy.TPU), "there is a TPU")
    gpus = devices.count_gpus()
    if gpus > 1:
        return _choice(MirroredStrategy(kind=Strategy.MIRRORED), f"there are {gpus} GPUs")
    if gpus == 1:
        return _choice(OneDeviceStrategy(kind=Strategy.ONE_DEVICE), "there is one GPU")
    return _choice(DefaultStrategy(kind=Strategy.DEFAULT), "there is neither a GPU nor a TPU")


def _choice(strategy: BaseStrategy, reason: str) -> StrategyChoice:
    return StrategyChoice(strategy=strategy, reason=reason)


PROGRESS_LOGGER = "scopeline.progress"
EPOCH = "epoch"
"""The unit of training progress, with a prefix if a run trains several models."""


ABOUT, AT_MOST = "about", "at most"
"""The words before the time left: whether `total` is the exact number of units, or a maximum."""


def report_step(
    text: str,
    done: float | None = None,
    total: float | None = None,
    detail: str = "",
    left: str = "",
    is_logged: bool = True,
) -> None:
    """Reports what the component does now, and how far it is.

    Args:
      text: what the component does, or `done` of `total` in words.
      done: the finished units, or None if unknown.
      total: the number of all units, or None if unknown.
      detail: more details, such as the losses of an epoch.
      left: `ABOUT` or `AT_MOST` if the units take about the same time, so that the pace so far
        tells the time left; otherwise an empty string.
      is_logged: whether the log has the report, too. Figures that change every second are only for
        the screen.
    """
    values = {"done": done, "total": total, "detail": detail, "left": left}
    extra = values | {"is_logged": is_logged}
    logging.getLogger(PROGRESS_LOGGER).info("%s", text, extra=extra)


def report_progress(done: int, total: int, unit: str, detail: str = "", left: str = "") -> None:
    """Logs `done` of `total` units; the other arguments are those of `report_step`."""
    report_step(f"{unit} {done} of {total}", done, total, detail, left)


def report_part(number: int, total: int, unit: str, detail: str = "") -> None:
    """Logs that part `number` of `total` parts begins; the parts are counted from 1."""
    report_step(f"{unit} {number} of {total}", number - 1, total, detail)


def report_ready() -> None:
    """Logs that the strategy is built, which means that every process of a cluster has
    connected.
    """
    logging.getLogger(PROGRESS_LOGGER).info("the strategy is built", extra={"ready": True})


def report_notice(text: str) -> None:
    """Logs a notice that the command prints immediately, independent of the progress."""
    logging.getLogger(PROGRESS_LOGGER).warning(text, extra={"notice": True})


def report_search(done: int, total: int | None, detail: str, left: str = "") -> None:
    """Logs how many trials of a search have ended, and their total number if it is fixed.

    The other arguments are those of `report_step`.
    """
    of_total = "" if total is None else f" of {total}"
    report_step(f"{done}{of_total} trials", done, total, detail, left)


def report_trial(trial: dict[str, Any]) -> None:
    """Logs a finished trial, given as a dictionary: number, state, values, value and cause."""
    text = f"trial {trial['number']} {trial['state']}: {trial['value']} with {trial['values']}"
    logging.getLogger(PROGRESS_LOGGER).info("%s", text, extra={"trial": trial})


class StrategyChoice(Settings):
    """A strategy other than `auto`, with the reason for its choice."""

    strategy: StrategySettings
    reason: str = ""
    """The reason for the choice, or an empty string if the config names the strategy."""


class WorkerContext(Settings):
    """The context of one training process, which `run_fn` reads from `fn_args.runtime`."""

    choice: StrategyChoice | None = None
    """The strategy to use, or None for `train.strategy`."""
    backup_directory: str | None = None
    """The folder of the checkpoints to resume from, or None for a folder in the model run."""
    writes_backup: bool = True
    """Whether this process writes checkpoints; False if another process writes them to the same
    folder.
    """
    backup_steps: PositiveInt | None = None
    """The steps between checkpoints, or None for a checkpoint at the end of each epoch."""
    continued_epochs: NonNegativeInt = 0
    """The number of finished epochs of the training that this training continues, or 0 for none."""
    restarts: tuple[str, ...] = ()
    """A sentence for each restart of the training."""
    workers: PositiveInt = 1
    """The number of processes that compute gradients."""

    @property
    def reason(self) -> str:
        """The reason for the choice of the strategy, or "" if the config names the strategy."""
        return self.choice.reason if self.choice else ""


def read_run(
    fn_args: Any, settings: TrainerSettings | None = None, runtime: WorkerContext | None = None
) -> tuple[TrainerSettings, WorkerContext]:
    """Reads the settings and the runtime from the arguments of a `run_fn`.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes.
      settings: the settings; None to read them from `custom_config`.
      runtime: the runtime; None to read `fn_args.runtime`, or a default if that is missing.

    Returns:
      The settings, with the chosen strategy, and the runtime.
    """
    settings = settings or TrainerSettings.from_custom_config(fn_args.custom_config)
    runtime = runtime or getattr(fn_args, "runtime", None) or WorkerContext()
    if runtime.choice is not None:
        settings = settings.with_strategy(runtime.choice.strategy)
    return settings, runtime


RECORD_FILE = "training.json"
"""The name of the record in the folder of the model run."""

MEMBERS_FOLDER = "members"
"""The subfolder of the checkpoints that has the finished members of an ensemble."""


def write_record(model_run_dir: str, record: Mapping[str, Any]) -> None:
    """Writes the record into the existing folder of a model run."""
    import tensorflow as tf

    with tf.io.gfile.GFile(os.path.join(model_run_dir, RECORD_FILE), "w") as file:
        json.dump(record, file, indent=2)
