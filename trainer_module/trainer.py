"""`run_fn`, what TFX Trainer runs: the data in, a trained model exported, a record of how."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from tfx.components.trainer.fn_args_utils import FnArgs

from trainer_module.callbacks import BestWeights, build_callbacks
from trainer_module.errors import TrainingError
from trainer_module.export import export_model
from trainer_module.input_pipeline import Split, load_split, steps_per_execution
from trainer_module.models import load_builder
from trainer_module.problem import Problem
from trainer_module.schedules import build_schedule
from trainer_module.settings import TrainerSettings
from trainer_module.strategies import build_strategy

RECORD_FILE = "training.json"
"""In the model run: how the training went."""


def run_fn(fn_args: FnArgs) -> None:
    """Trains under the configured strategy, restores the best epoch and exports it.

    Raises:
        TrainingError: if the model, the strategy or the data cannot be used, or training diverges.
    """
    settings = TrainerSettings.from_custom_config(fn_args.custom_config)
    tf_keras.utils.set_random_seed(settings.train.seed)
    strategy = build_strategy(settings.train.strategy)
    tft_output = tft.TFTransformOutput(fn_args.transform_graph_path)
    problem = Problem.from_transform(tft_output, settings.task, settings.label)
    batch_size = settings.train.batch_size * strategy.num_replicas_in_sync
    train, evaluation = load_splits(fn_args, tft_output, problem, settings, batch_size)
    problem = replace(problem, label_mean=train.label_mean, label_deviation=train.label_deviation)
    with strategy.scope():
        model = build_model(problem, settings, train)
    callbacks = build_callbacks(settings.train, fn_args.model_run_dir)
    start = time.monotonic()
    history = model.fit(
        train.dataset,
        validation_data=evaluation.dataset,
        epochs=settings.train.epochs,
        callbacks=callbacks,
        verbose=0,
    )
    seconds = time.monotonic() - start
    export_model(model, tft_output, problem, settings, fn_args.serving_model_dir)
    best = next(c.best_epoch for c in callbacks if isinstance(c, BestWeights))
    record = describe(settings, strategy, train, evaluation, history.history, best, seconds)
    with tf.io.gfile.GFile(os.path.join(fn_args.model_run_dir, RECORD_FILE), "w") as file:
        json.dump(record, file, indent=2)


def load_splits(
    fn_args: FnArgs,
    tft_output: tft.TFTransformOutput,
    problem: Problem,
    settings: TrainerSettings,
    batch_size: int,
) -> tuple[Split, Split]:
    """The train split, shuffled every epoch, and the eval split, in order."""
    spec = tft_output.transformed_feature_spec()
    seed = settings.train.seed
    return (
        load_split("train", fn_args.train_files, spec, problem, batch_size, shuffle_seed=seed),
        load_split("eval", fn_args.eval_files, spec, problem, batch_size),
    )


def build_model(problem: Problem, settings: TrainerSettings, train: Split) -> tf_keras.Model:
    """The model, compiled unless its builder did so; call it in the scope of the strategy.

    Raises:
        TrainingError: if there is no such builder, or it does not return a tf_keras model.
    """
    model = load_builder(settings.model.kind)(problem, settings.model)
    if not isinstance(model, tf_keras.Model):
        raise TrainingError(
            f"model {settings.model.kind!r}: the builder must return a tf_keras.Model, but it "
            f"returned {type(model).__module__}.{type(model).__qualname__}."
        )
    if model.optimizer is None:
        model.compile(
            optimizer=tf_keras.optimizers.Adam(build_schedule(settings.train, train.steps)),
            loss=problem.make_loss(),
            metrics=problem.make_metrics(),
            steps_per_execution=steps_per_execution(
                train, tf.distribute.get_strategy().num_replicas_in_sync, settings.train.epochs
            ),
        )
    return model


def describe(
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    train: Split,
    evaluation: Split,
    history: dict[str, list[float]],
    best_epoch: int,
    seconds: float,
) -> dict[str, Any]:
    """The record of a training run, as JSON: `history` has a value per epoch for each metric."""
    epochs = len(history["loss"])
    return {
        "model": settings.model.kind,
        "strategy": str(settings.train.strategy),
        "replicas": strategy.num_replicas_in_sync,
        "global_batch_size": train.batch_size,
        "epochs": epochs,
        "best_epoch": best_epoch,
        "examples": {"train": train.examples, "eval": evaluation.examples},
        "source": train.source,
        "steps": epochs * train.steps,
        "seconds": round(seconds, 3),
        "examples_per_second": round(epochs * train.examples / seconds, 1),
        "history": {name: [float(v) for v in values] for name, values in history.items()},
    }
