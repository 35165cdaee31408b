"""The worker processes that a strategy needs, and their payloads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from components.processes.launcher import Place, WorkerSpec
from components.processes.supervisor import Policy
from trainer_module.errors import ConfigError
from trainer_module.runtime import WorkerContext
from trainer_module.settings import TrainerSettings
from trainer_module.strategies import processes_of
from trainer_module.strategies.base import Processes
from trainer_module.tf_config import TFConfig, task_name
from trainer_module.typed_words import typed_program

MODULE = "components.trainer.worker"
SINGLE_WORKER = Place("worker", 0, label="the trainer")


@dataclass(frozen=True)
class Training:
    """The description of a training run, which does not depend on the processes."""

    run_fn: str
    """The import path of the training function."""
    arguments: Mapping[str, Any]
    """The values of TFX's FnArgs, as JSON."""
    settings: TrainerSettings
    runtime: WorkerContext
    scratch: str
    """The folder for the exports of the processes that are not the chief; nothing reads them."""


def make_workers(training: Training, strategy: str, tf_config: TFConfig | None) -> list[WorkerSpec]:
    """Returns the processes that train; the first process exports the resulting model.

    Args:
      strategy: the name of the strategy, after `auto` is resolved.
      tf_config: the TF_CONFIG of an external cluster that this run joins, or None.

    Raises:
      ConfigError: the strategy cannot train in the external cluster, or not as this run's task.
    """
    cluster = training.settings.train.cluster_or_default
    processes = processes_of(strategy)
    if processes is Processes.ONE:
        return [_trainer(training, SINGLE_WORKER, training.runtime)]
    if tf_config is not None:
        return [_join(training, strategy, tf_config)]
    if processes is Processes.SERVERS:
        runtime = training.runtime.model_copy(update={"workers": cluster.workers})
        chief = _coordinator(_trainer(training, Place("chief", 0), runtime))
        workers = [_server(training, Place("worker", i)) for i in range(cluster.workers)]
        return [
            chief,
            *workers,
            *(_server(training, Place("ps", i)) for i in range(cluster.parameter_servers)),
        ]
    if cluster.workers == 1:
        return [_trainer(training, SINGLE_WORKER, training.runtime)]
    return [_worker(training, i, cluster.workers) for i in range(cluster.workers)]


def restart_policy(strategy: str) -> Policy:
    """Returns the processes to restart after a process of the strategy is lost."""
    return Policy.COORDINATOR if processes_of(strategy) is Processes.SERVERS else Policy.GANG


def _trainer(
    training: Training,
    place: Place,
    runtime: WorkerContext,
    tf_config: TFConfig | None = None,
    **arguments: str,
) -> WorkerSpec:
    """Returns a process that calls `run_fn`; `arguments` replace some of its arguments."""
    payload = {
        "run_fn": training.run_fn,
        "arguments": {**training.arguments, **arguments},
        "runtime": runtime.model_dump(mode="json"),
    }
    if tf_config is not None:
        payload |= {"tf_config": tf_config.to_json(), "check_address": tf_config.address}
    return WorkerSpec(place, MODULE, payload)


def _coordinator(trainer: WorkerSpec) -> WorkerSpec:
    """Returns the trainer with the environment of a coordinator.

    With the variable, calls to a lost worker fail, instead of waiting indefinitely.
    """
    return replace(trainer, environment={"GRPC_FAIL_FAST": "use_caller"})


def _worker(training: Training, index: int, workers: int) -> WorkerSpec:
    """Returns a process that trains synchronously with the other workers.

    The first worker exports the resulting model.
    """
    changes = {"workers": workers, "writes_backup": index == 0}
    runtime = training.runtime.model_copy(update=changes)
    if index == 0:
        return _trainer(training, Place("worker", 0), runtime)
    name = f"worker-{index}"
    return _trainer(
        training,
        Place("worker", index),
        runtime,
        serving_model_dir=os.path.join(training.scratch, name, "serving"),
        eval_model_dir=os.path.join(training.scratch, name, "eval"),
        model_run_dir=os.path.join(training.arguments["model_run_dir"], name),
    )


def _server(training: Training, place: Place) -> WorkerSpec:
    """Returns a worker or a parameter server, which serves the chief."""
    return WorkerSpec(place, MODULE, {"serve": True, "model": training.settings.model.builder})


def _join(training: Training, strategy: str, tf_config: TFConfig) -> WorkerSpec:
    """Returns the process of this run's task in an external cluster."""
    name = task_name(tf_config.task_type, tf_config.task_index)
    servers = processes_of(strategy) is Processes.SERVERS
    if servers and not tf_config.has_parameter_servers:
        raise ConfigError(
            f"train.strategy is {strategy}, but the cluster in TF_CONFIG has only the tasks "
            f"{', '.join(tf_config.cluster)}; add parameter servers (`ps`), or set train.strategy: "
            "multi_worker_mirrored."
        )
    if not servers and tf_config.has_parameter_servers:
        raise ConfigError(
            f"train.strategy is {strategy}, but the cluster in TF_CONFIG has parameter servers; "
            "set train.strategy: parameter_server, or remove `ps` from TF_CONFIG."
        )
    if servers and not tf_config.is_chief:
        raise ConfigError(
            f"TF_CONFIG makes this run {name} of a cluster with parameter servers, but a run can "
            f"only be the chief; start the other tasks with `{typed_program()} cluster start`, "
            "and run the pipeline as the chief."
        )
    runtime = training.runtime.model_copy(update={"workers": tf_config.workers})
    place = Place(tf_config.task_type, tf_config.task_index)
    trainer = _trainer(training, place, runtime, tf_config)
    return _coordinator(trainer) if servers else trainer
