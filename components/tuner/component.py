"""The Tuner component, with the inputs and outputs of TFX's Tuner.

It does not use KerasTuner, which does not support tf_keras.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from tfx import types
from tfx.components.trainer.fn_args_utils import FnArgs, get_common_fn_args
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.proto import trainer_pb2
from tfx.types import (
    BaseChannel,
    Channel,
    artifact_utils,
    standard_artifacts,
    standard_component_specs,
)
from tfx.types.component_spec import ChannelParameter
from tfx.types.standard_component_specs import (
    ANOMALIES_KEY,
    BEST_HYPERPARAMETERS_KEY,
    CUSTOM_CONFIG_KEY,
    TUNER_RESULTS_KEY,
)

from components.column_types.injection import add_choices
from components.copying import copy_folder
from components.example_validator.anomalies import read_anomalies
from components.processes.local.fork_server import current_server
from components.processes.local.launcher import LocalLauncher
from components.split_files import Artifacts
from components.trainer.backups import backup_directory
from components.trainer.best_values import find_earlier, read_best, write_best
from components.trainer.options import TrainerOptions
from components.tuner.records import TrialRecord, read_leaderboard, summarize, write_leaderboard
from trainer_module.runtime import WorkerContext, choose_strategy, report_notice
from trainer_module.scratch import lasting_folder
from trainer_module.settings.tune import SEARCH_LIMITS, TUNE_KEY
from trainer_module.tf_config import read_tf_config
from trainer_module.tuning.plan import SearchPlan

_ARGUMENTS = ("train_files", "eval_files", "transform_graph_path", "custom_config")
"""The fields of TFX's FnArgs that a trial needs."""


class SearchExecutor(base_executor.BaseExecutor):
    """Runs trials until their number or the time is reached, and writes the best values."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Searches with the inputs and outputs of TFX's Tuner.

        Raises:
          ConfigError: TF_CONFIG or the options are not valid, or the folder of the study has a
            study of another search space.
          TrainingError: no trial was completed.
          ScopelineError: a process could not begin a trial.
        """
        exec_properties = add_choices(input_dict, exec_properties)
        fn_args = get_common_fn_args(input_dict, exec_properties)
        plan = SearchPlan.from_custom_config(fn_args.custom_config)
        results = artifact_utils.get_single_uri(output_dict[TUNER_RESULTS_KEY])
        best = artifact_utils.get_single_uri(output_dict[BEST_HYPERPARAMETERS_KEY])
        search = _fingerprint(fn_args.custom_config)
        if plan.tune.reuse and reuse_best(input_dict.get(ANOMALIES_KEY, []), best, results, search):
            return
        folder = _study_folder(input_dict, exec_properties, results)
        os.makedirs(folder, exist_ok=True)
        trials = _search(folder, plan, fn_args)
        leaderboard = summarize(
            trials, plan.objective, plan.tune.is_automatic, plan.searches_members
        )
        copy_folder(folder, results)
        write_leaderboard(results, leaderboard)
        write_best(best, leaderboard["values"], search)
        shutil.rmtree(folder)


def _search(folder: str, plan: SearchPlan, fn_args: FnArgs) -> list[TrialRecord]:
    # The import is here: Optuna takes 0.25 seconds to import, and most runs have no search.
    from components.tuner.search import Search, SearchJob

    options = TrainerOptions.from_environment()
    choice = options.choice or choose_strategy(plan.untuned.train, read_tf_config(os.environ))
    runtime = WorkerContext(choice=choice, backup_steps=options.backup_steps)
    job = SearchJob(
        plan=plan,
        folder=folder,
        arguments={name: getattr(fn_args, name) for name in _ARGUMENTS},
        runtime=runtime.model_dump(mode="json"),
        has_own_split=fn_args.eval_files != fn_args.train_files,
    )
    return Search(LocalLauncher(current_server()), job).run()


def _without_duration(custom_config: dict[str, Any]) -> dict[str, Any]:
    space = {k: v for k, v in custom_config[TUNE_KEY].items() if k not in SEARCH_LIMITS}
    return {**custom_config, TUNE_KEY: space}


def _fingerprint(custom_config: dict[str, Any]) -> str:
    """Returns a hash of the search space and the code, which does not depend on the data."""
    content = json.dumps(_without_duration(custom_config), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def reuse_best(anomalies: Sequence[types.Artifact], best: str, results: str, search: str) -> bool:
    """Copies the result of the latest search of the same space, unless the data has drifted.

    Returns whether a result was copied.
    """
    earlier = find_earlier(best, search)
    has_drifted = any(a.is_drift for artifact in anomalies for a in read_anomalies(artifact))
    if earlier is None or has_drifted:
        return False
    execution = posixpath.basename(earlier)
    earlier_results = posixpath.join(posixpath.dirname(results.rstrip("/")), execution)
    write_leaderboard(results, {**read_leaderboard(earlier_results), "reused": execution})
    write_best(best, read_best(earlier), search)
    report_notice(f"reuses the best values of execution {execution} (tune.reuse)")
    return True


def _study_folder(input_dict: Artifacts, exec_properties: dict[str, Any], results: str) -> str:
    """Returns the folder of the study, which depends on the search space and the data.

    It does not depend on the duration of the search, and is not in the folder of an execution,
    because TFX deletes the output of a failed execution. If the pipeline root is remote, it is a
    temporary folder of this machine.
    """
    custom_config = _without_duration(json.loads(exec_properties[CUSTOM_CONFIG_KEY]))
    properties = {**exec_properties, CUSTOM_CONFIG_KEY: custom_config}
    scope = TrainerOptions.from_environment().backup_scope
    folder = backup_directory(input_dict, properties, results, scope)
    if "://" not in folder:
        return folder
    return os.path.join(lasting_folder(), f"scopeline-{posixpath.basename(folder)}")


class TunerSpec(standard_component_specs.TunerSpec):
    """The spec of TFX's Tuner, with the anomalies of the data as an additional input."""

    INPUTS = standard_component_specs.TunerSpec.INPUTS | {
        standard_component_specs.ANOMALIES_KEY: ChannelParameter(
            type=standard_artifacts.ExampleAnomalies, optional=True
        )
    }


class Tuner(base_component.BaseComponent):
    """Searches for better settings of the training.

    The output `best_hyperparameters` has the best values by key, and `tuner_results` all trials.
    """

    SPEC_CLASS = TunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(SearchExecutor)

    def __init__(
        self,
        examples: BaseChannel,
        transform_graph: BaseChannel,
        schema: BaseChannel,
        anomalies: BaseChannel | None,
        train_split: str,
        eval_split: str,
        custom_config: Mapping[str, Any],
    ) -> None:
        """Constructs the TFX component.

        Args:
          schema: a channel of Schema, with the chosen types of columns.
          anomalies: a channel of ExampleAnomalies, or None. It is needed for `tune.reuse`, which
            reuses the result of an earlier search until the data drifts.
          train_split: the split on which trials are trained.
          eval_split: the split on which trials are measured. If it equals `train_split`, a part of
            the split is held out for measuring.
        """
        spec = TunerSpec(
            examples=examples,
            transform_graph=transform_graph,
            schema=schema,
            anomalies=anomalies,
            train_args=trainer_pb2.TrainArgs(splits=[train_split]),
            eval_args=trainer_pb2.EvalArgs(splits=[eval_split]),
            custom_config=json.dumps(custom_config),
            best_hyperparameters=Channel(type=standard_artifacts.HyperParameters),
            tuner_results=Channel(type=standard_artifacts.TunerResults),
        )
        super().__init__(spec=spec)
