"""The Trainer component, which trains in the child processes that the strategy needs."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tfx.components.trainer.executor import GenericExecutor
from tfx.components.trainer.fn_args_utils import FnArgs, get_common_fn_args
from tfx.dsl.components.base import base_component, executor_spec
from tfx.dsl.io import fileio
from tfx.types import (
    Artifact,
    BaseChannel,
    Channel,
    artifact_utils,
    component_spec,
    standard_artifacts,
)
from tfx.types import standard_component_specs as specs
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.standard_component_specs import (
    HYPERPARAMETERS_KEY,
    MODEL_KEY,
    MODEL_RUN_KEY,
    RUN_FN_KEY,
)
from tfx.utils import io_utils, path_utils

from components.column_types.injection import add_choices
from components.processes.failures import StartTimeoutError
from components.processes.launcher import Launcher, WorkerSpec
from components.processes.local.fork_server import current_server
from components.processes.local.launcher import LocalLauncher, run_one
from components.processes.ports import answers
from components.processes.supervisor import ClusterJob, Supervisor
from components.split_files import Artifacts, split_files
from components.trainer.backups import (
    backup_directory,
    find_interrupted,
    has_record,
    keep_backup,
    remove_backup,
    restore_checkpoints,
    steps_key,
)
from components.trainer.best_values import add_best
from components.trainer.options import TrainerOptions
from components.trainer.workers import Training, make_workers, restart_policy
from trainer_module.errors import ConfigError, TrainingError
from trainer_module.record import add_restarts
from trainer_module.runtime import WorkerContext, choose_strategy, report_notice
from trainer_module.scratch import ScratchFolder
from trainer_module.settings import AUTO, TrainerSettings
from trainer_module.settings.ensembles import grows_trees
from trainer_module.settings.model import ENSEMBLE_TRAINER, TRAINER, TRAINERS, trainer_of
from trainer_module.strategies import processes_of
from trainer_module.strategies.base import BaseStrategy, Processes
from trainer_module.tf_config import TFConfig, read_tf_config
from trainer_module.typed_words import typed_kubeflow_program

_ARGUMENTS = (
    "train_files",
    "eval_files",
    "train_steps",
    "eval_steps",
    "transform_graph_path",
    "transform_output",
    "schema_path",
    "serving_model_dir",
    "eval_model_dir",
    "model_run_dir",
    "base_model",
    "hyperparameters",
    "custom_config",
)

"""The fields of FnArgs that are sent to the child process as JSON, so that it does not import
TFX."""

_NOT_RESUMED = (
    "the interrupted training run in {} is not resumed, because its data, settings or code were"
    " different; delete that folder, unless you want to resume that run with its data, settings"
    " and code"
)
_NO_CHECKPOINTS = (
    "train.checkpoints: no checkpoint is kept, because {} has written no training record"
)

_NETWORK_ALONE = (
    "model: only the network of the ensemble is trained, because train.strategy is {}, under which "
    "no trees can be grown"
)


class ClusterTrainerExecutor(GenericExecutor):
    """Calls `run_fn` in the processes of the strategy, and restarts lost processes."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Trains with the inputs and outputs of TFX's Trainer.

        `run_fn` must be an import path.

        Raises:
          ConfigError: TF_CONFIG or the options are not valid.
          ScopelineError: `run_fn` raised this error.
          WorkerFailedError: `run_fn` raised another error, or processes were lost more often than
            the options allow.
          TrainingError: `run_fn` exported no model, or a process did not start in time.
        """
        exec_properties = add_best(input_dict, add_choices(input_dict, exec_properties))
        fn_args = self.make_arguments(input_dict, output_dict, exec_properties)
        options = TrainerOptions.from_environment()
        backup = backup_directory(
            input_dict, exec_properties, fn_args.model_run_dir, options.backup_scope
        )
        settings = TrainerSettings.from_custom_config(fn_args.custom_config)
        train = settings.train
        run_fn = exec_properties[RUN_FN_KEY]
        key = steps_key(input_dict, exec_properties)
        # The number of epochs of `auto` is computed later, from the data.
        epochs = 0 if train.epochs == AUTO else train.epochs
        interrupted = find_interrupted(backup)
        # If there is a backup scope, other backups may belong to training runs in progress.
        if interrupted and not options.backup_scope:
            report_notice(_NOT_RESUMED.format(interrupted[-1]))
        continued_epochs = restore_checkpoints(backup, fn_args.model_run_dir, key, epochs)
        _train(run_fn, fn_args, backup, continued_epochs, options)
        if not fileio.exists(fn_args.serving_model_dir):
            raise TrainingError(
                f"{run_fn} exported no model; export the model to fn_args.serving_model_dir, "
                f"{fn_args.serving_model_dir}."
            )
        if train.checkpoints and has_record(fn_args.model_run_dir):
            keep_backup(backup, fn_args.model_run_dir, key, train.checkpoints)
        elif train.checkpoints:
            report_notice(_NO_CHECKPOINTS.format(run_fn))
        remove_backup(backup)

    def make_arguments(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> FnArgs:
        """Returns the arguments of `run_fn`: its inputs, and the folders of its outputs."""
        fn_args = self.read_inputs(input_dict, exec_properties)
        model = artifact_utils.get_single_uri(output_dict[MODEL_KEY])
        fn_args.serving_model_dir = path_utils.serving_model_dir(model)
        fn_args.eval_model_dir = path_utils.eval_model_dir(model)
        fn_args.model_run_dir = artifact_utils.get_single_uri(output_dict[MODEL_RUN_KEY])
        return fn_args

    def read_inputs(self, input_dict: Artifacts, exec_properties: dict[str, Any]) -> FnArgs:
        """Returns the inputs that TFX's own Trainer passes to `run_fn`."""
        fn_args = get_common_fn_args(input_dict, exec_properties)
        fn_args.transform_output = fn_args.transform_graph_path
        if hyperparameters := input_dict.get(HYPERPARAMETERS_KEY):
            file = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(hyperparameters))
            with fileio.open(file, "r") as stream:
                fn_args.hyperparameters = json.loads(stream.read())
        return fn_args


def _train(
    run_fn: str, fn_args: FnArgs, backup: str, continued_epochs: int, options: TrainerOptions
) -> None:
    """Runs the workers of the strategy until they end."""
    settings = TrainerSettings.from_custom_config(fn_args.custom_config)
    tf_config = read_tf_config(os.environ)
    choice = options.choice or choose_strategy(settings.train, tf_config)
    runtime = WorkerContext(
        choice=choice,
        backup_directory=backup,
        backup_steps=options.backup_steps,
        continued_epochs=continued_epochs,
    )
    if run_fn in {f"{trainer}.run_fn" for trainer in TRAINERS}:
        run_fn = f"{choose_trainer(settings.model.kind, choice.strategy)}.run_fn"
    arguments = {name: getattr(fn_args, name) for name in _ARGUMENTS}
    strategy = choice.strategy.kind
    peer_config = None if processes_of(strategy) is Processes.ONE else tf_config
    with _scratch(options) as scratch:
        training = Training(run_fn, arguments, settings, runtime, scratch)
        workers = make_workers(training, strategy, tf_config)
        if len(workers) == 1 and peer_config is None:
            restarts = run_one(workers[0], options.retries)
        else:
            job = ClusterJob(
                workers,
                restart_policy(strategy),
                start_timeout=options.start_timeout,
                retries=options.retries,
                missing=functools.partial(_missing_peers, peer_config) if peer_config else None,
            )
            restarts = _run_cluster(job, peer_config, options, fn_args.model_run_dir)
    add_restarts(fn_args.model_run_dir, restarts)


def _run_cluster(
    job: ClusterJob, peer_config: TFConfig | None, options: TrainerOptions, model_run_dir: str
) -> list[str]:
    """Runs the workers of a cluster, and returns the causes of restarts."""
    try:
        with _launcher(options, job.specs, model_run_dir) as launcher:
            return Supervisor(launcher, job).run()
    except StartTimeoutError:
        if peer_config is not None and (
            error := _missing_peers_error(peer_config, options.start_timeout)
        ):
            raise error from None
        raise


def choose_trainer(kind: str, strategy: BaseStrategy) -> str:
    """Returns the module that trains a kind of model under a strategy.

    The kind may differ from the kind in the config, because the columns or a search have determined
    it. A notice reports an ensemble of which only the network can be trained.
    """
    trainer = trainer_of(kind)
    if trainer == ENSEMBLE_TRAINER and not grows_trees(strategy):
        report_notice(_NETWORK_ALONE.format(strategy.kind))
        return TRAINER
    return trainer


@contextmanager
def _scratch(options: TrainerOptions) -> Iterator[str]:
    """Yields a folder on the workers' machines, for files that no process reads."""
    if options.launcher == "kubernetes":
        from components.processes.kubernetes.objects import POD_SCRATCH

        yield POD_SCRATCH
        return
    with ScratchFolder() as folder:
        yield folder


@contextmanager
def _launcher(
    options: TrainerOptions, workers: Sequence[WorkerSpec], model_run_dir: str
) -> Iterator[Launcher]:
    """Yields the launcher of the workers. A single worker always runs on this machine."""
    if options.launcher == "local" or len(workers) == 1:
        yield LocalLauncher(current_server())
        return
    if options.pods is None:
        raise ConfigError(
            "train.cluster.launcher is kubernetes, but the image of the pods is unknown; compile "
            f"the pipeline with `{typed_kubeflow_program()} compile`, or set "
            "train.cluster.launcher: local."
        )
    # The import is here, because the import takes a second.
    from components.processes.kubernetes.launcher import KubernetesLauncher, exits_on_sigterm

    # The folder of the model run is the key of the workers: all attempts of this execution use
    # this folder, and no other run does.
    with exits_on_sigterm():
        yield KubernetesLauncher(options.pods, model_run_dir)


def _missing_peers(tf_config: TFConfig) -> list[str]:
    """Returns the peers that do not answer, with their addresses."""
    return [f"{name} at {address}" for name, address in tf_config.peers if not answers(address)]


def _missing_peers_error(tf_config: TFConfig, limit: float) -> StartTimeoutError | None:
    """Returns the error that lists the peers that do not answer, or None if all peers answer."""
    missing = _missing_peers(tf_config)
    if not missing:
        return None
    return StartTimeoutError(
        f"no answer from {', '.join(missing)} within {limit:g} s; start "
        f"{'this task' if len(missing) == 1 else 'these tasks'}, or correct TF_CONFIG."
    )


class FamilyTrainerExecutor(ClusterTrainerExecutor):
    """Calls the `run_fn` of a task's family in the processes of the strategy."""

    def read_inputs(self, input_dict: Artifacts, exec_properties: dict[str, Any]) -> FnArgs:
        """Returns the inputs of `run_fn`. The lists of files are empty if there are no examples."""
        base_models = input_dict.get(specs.BASE_MODEL_KEY)
        return FnArgs(
            train_files=_files(input_dict, "train"),
            eval_files=_files(input_dict, "eval"),
            base_model=path_utils.serving_model_path(base_models[0].uri) if base_models else None,
            custom_config=json.loads(exec_properties[specs.CUSTOM_CONFIG_KEY]),
        )


def _files(input_dict: Mapping[str, list[Artifact]], split: str) -> list[str]:
    examples = input_dict.get(specs.EXAMPLES_KEY) or []
    return sorted(split_files(examples, split)) if examples else []


class TrainerSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of `Trainer`, whose constructor explains them."""

    PARAMETERS = {
        name: ExecutionParameter(type=str) for name in (specs.RUN_FN_KEY, specs.CUSTOM_CONFIG_KEY)
    }
    INPUTS = {
        specs.EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples, optional=True),
        specs.SCHEMA_KEY: ChannelParameter(type=standard_artifacts.Schema, optional=True),
        specs.BASE_MODEL_KEY: ChannelParameter(type=standard_artifacts.Model, optional=True),
    }
    OUTPUTS = {
        specs.MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        specs.MODEL_RUN_KEY: ChannelParameter(type=standard_artifacts.ModelRun),
    }


class Trainer(base_component.BaseComponent):
    """Trains in the processes of the strategy, with or without examples."""

    SPEC_CLASS = TrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(FamilyTrainerExecutor)

    def __init__(
        self,
        run_fn: str,
        custom_config: Mapping[str, Any],
        examples: BaseChannel | None = None,
        base_model: BaseChannel | None = None,
        schema: BaseChannel | None = None,
    ) -> None:
        """Constructs the TFX component.

        Args:
          run_fn: the import path of the training function.
          examples: a channel of Examples, or None if training needs no examples.
          base_model: a channel of Model with the model that training starts from, or None.
          schema: a channel of Schema, or None; the types and sizes in the schema complete the
            settings.
        """
        spec = TrainerSpec(
            run_fn=run_fn,
            custom_config=json.dumps(custom_config),
            examples=examples,
            schema=schema,
            base_model=base_model,
            model=Channel(type=standard_artifacts.Model),
            model_run=Channel(type=standard_artifacts.ModelRun),
        )
        super().__init__(spec=spec)
