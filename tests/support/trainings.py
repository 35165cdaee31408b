"""Trainings of a network, whole, or up to the first step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tf_keras

from tests.support import SUPPORT
from tests.support.trainer_data import Transformed, read_record, run_script
from trainer_module.runtime import WorkerContext
from trainer_module.settings import Loop, TrainerSettings
from trainer_module.settings.model import load_trainer
from trainer_module.trainer import train
from trainer_module.training.plan import TrainingInputs, TrainingPlan, TrainingResult, open_inputs


def open_training(
    fn_args: Any, runtime: WorkerContext | None = None, **changes: Any
) -> TrainingInputs:
    """What a training is given; the examples that are looked at decide on its length."""
    return replace(open_inputs(fn_args, runtime=runtime or WorkerContext()), **changes)


def train_whole(
    inputs: TrainingInputs, extra_callbacks: Sequence[tf_keras.callbacks.Callback] = ()
) -> TrainingResult:
    """A training to its end."""
    return train(
        replace(inputs, extra_callbacks=extra_callbacks),
        TrainingPlan.of(inputs.settings, inputs.data),
    )


def begin(inputs: TrainingInputs) -> TrainingResult:
    """What there is before the first step: by the loop that may have no epoch."""
    settings = inputs.settings
    custom = settings.train.model_copy(update={"loop": Loop.CUSTOM})
    changed = settings.model_copy(update={"train": custom})
    plan = TrainingPlan.of(settings, inputs.data)
    return train(replace(inputs, settings=changed), replace(plan, last_epoch=0))


def run_fn(fn_args: Any) -> None:
    """The `run_fn` of the kind of model, as the graph names it."""
    kind = TrainerSettings.from_custom_config(fn_args.custom_config).model.kind
    load_trainer(kind).run_fn(fn_args)


def train_in_cluster(
    data: Transformed, directory: Path, base: str | None = None, **sections: Any
) -> dict[str, Any]:
    """Trains in the processes of the strategy, as the executor launches them; the record."""
    fn_args = data.fn_args(directory, **sections)
    names = ("train_files", "eval_files", "transform_graph_path", "custom_config")
    arguments = {name: getattr(fn_args, name) for name in names}
    arguments |= {
        "serving_model_dir": fn_args.serving_model_dir,
        "eval_model_dir": str(directory / "eval"),
        "model_run_dir": fn_args.model_run_dir,
        "base_model": base,
    }
    folders = {name: str(directory / name) for name in ("backup", "scratch")}
    order = directory / "order.json"
    order.write_text(json.dumps({"arguments": arguments, **folders}))
    run_script(SUPPORT / "cluster_run.py", str(order), timeout=500)
    return read_record(fn_args.serving_model_dir)
