"""Searches in child processes, as Trainer trains; goes on after a kill from where it was."""

from __future__ import annotations

import json
import os
from typing import Any

from tfx import types
from tfx.components.trainer.fn_args_utils import get_common_fn_args
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.standard_component_specs import (
    BEST_HYPERPARAMETERS_KEY,
    CUSTOM_CONFIG_KEY,
    TUNER_RESULTS_KEY,
)

from components.column_types.handing_on import add_choices
from components.trainer.backups import backup_directory
from components.trainer.best_values import write_best
from components.trainer.cluster.local.fork_server import current_server
from components.trainer.cluster.local.launcher import LocalLauncher
from components.trainer.options import TrainerOptions
from components.tuner.results import summarize, write_leaderboard
from trainer_module.runtime import Runtime
from trainer_module.settings.tune import HOW_LONG, TUNE_KEY
from trainer_module.strategies.automatic import choose_strategy
from trainer_module.tf_config import read_tf_config
from trainer_module.tuning.plan import SearchPlan

_ARGUMENTS = ("train_files", "eval_files", "transform_graph_path", "custom_config")
"""What a trial needs of TFX's FnArgs."""


class SearchExecutor(base_executor.BaseExecutor):
    """Tries candidates until there are enough or the time is over, and tells which was the best."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Takes and gives what TFX's Tuner does.

        Raises:
          ConfigError: TF_CONFIG or the options cannot be used, or there is a study of another
              space.
          TrainingError: no trial came to its end.
          ScopelineError: as a process raised it that could not begin to try.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        # Optuna takes a quarter of a second to import, which runs without a search do not wait for.
        from components.tuner.search import Search, SearchJob

        exec_properties = add_choices(input_dict, exec_properties)
        fn_args = get_common_fn_args(input_dict, exec_properties)
        plan = SearchPlan.from_custom_config(fn_args.custom_config)
        results = artifact_utils.get_single_uri(output_dict[TUNER_RESULTS_KEY])
        job = SearchJob(
            plan=plan,
            folder=_study_folder(input_dict, exec_properties, results),
            arguments={name: getattr(fn_args, name) for name in _ARGUMENTS},
            runtime=_runtime(plan).model_dump(mode="json"),
            has_own_split=fn_args.eval_files != fn_args.train_files,
        )
        os.makedirs(job.folder, exist_ok=True)
        trials = Search(LocalLauncher(current_server()), job).run()
        leaderboard = summarize(trials, plan.objective)
        best = artifact_utils.get_single_uri(output_dict[BEST_HYPERPARAMETERS_KEY])
        write_best(best, leaderboard["values"])
        # The study's folder is another search's no more: the results have its trials.
        _move(job.folder, results)
        write_leaderboard(results, leaderboard)


def _runtime(plan: SearchPlan) -> Runtime:
    """What a trial is told of this machine, as a training is."""
    options = TrainerOptions.from_environment()
    settings = plan.untuned
    choice = options.choice or choose_strategy(settings.train, read_tf_config(os.environ))
    return Runtime(choice=choice, backup_steps=options.backup_steps)


def _study_folder(
    input_dict: dict[str, list[types.Artifact]], exec_properties: dict[str, Any], results: str
) -> str:
    """The same for every search of the same space and data, however long: beside the executions.

    TFX deletes what a failed execution has written.
    """
    told = json.loads(exec_properties[CUSTOM_CONFIG_KEY])
    space = {k: v for k, v in told[TUNE_KEY].items() if k not in HOW_LONG}
    properties = {**exec_properties, CUSTOM_CONFIG_KEY: {**told, TUNE_KEY: space}}
    return backup_directory(input_dict, properties, results)


def _move(folder: str, results: str) -> None:
    for name in fileio.listdir(folder):
        fileio.rename(os.path.join(folder, name), os.path.join(results, name), overwrite=True)
    fileio.rmtree(folder)
