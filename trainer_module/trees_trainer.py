"""The `run_fn` of trees, which are grown instead of trained in steps of an optimizer.

An epoch is one more tree for each output.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.data.dealing import (
    Folds,
    Parts,
    count_units,
    divide_examples,
    exempt_rare_classes,
    renumber,
)
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.errors import TrainingError, counted
from trainer_module.export.saving import export_model
from trainer_module.families.supervised.tasks.layers import correct_bias
from trainer_module.families.supervised.tasks.numbers import bias_factor
from trainer_module.families.supervised.trees.averaging import grow_averaged
from trainer_module.families.supervised.trees.growing import (
    GrownForest,
    Report,
    TreeExamples,
    grow,
    tree_examples,
)
from trainer_module.families.supervised.trees.model import build_model
from trainer_module.families.supervised.trees.thresholds import move_thresholds
from trainer_module.problem import Problem
from trainer_module.record import describe, with_cross_validation
from trainer_module.runtime import ABOUT, report_progress, write_record
from trainer_module.settings import ModelSettings, TrainerSettings
from trainer_module.training.folds import Train
from trainer_module.training.plan import TrainingInputs, TrainingResult, open_inputs

PARTS, MEMBERS = 10, 5
"""The number of parts that the train split is cut into, and the largest number of forests.

Each forest uses another tenth of the train split for early stopping; in an order of time, the
latest tenth. More forests take longer in training and serving.
"""

SINGLE_FOREST_EXAMPLES = 20_000
"""The number of examples from which one tenth is enough for early stopping.

With fewer examples the model is the mean of several forests, which is more accurate than a single
forest, most of all for small tables.
"""

MAX_LISTED_COLUMNS = 5
"""The number of columns whose importance the summary lists."""


def run_fn(fn_args: Any) -> None:
    """Grows a forest and exports it.

    Args:
      fn_args: the arguments of `trainer_module.trainer.run_fn`.

    Raises:
      TrainingError: the data cannot be used, or does not fit into memory.
    """
    train_and_export(train, fn_args)


def train_and_export(train: Train, fn_args: Any) -> None:
    """Trains a model without a plan of steps, exports the model, and writes the record.

    Args:
      train: the function that trains the model, and the model of each fold of a cross-validation.
      fn_args: the arguments of `trainer_module.trainer.run_fn`.

    Raises:
      TrainingError: the data or the model cannot be used.
    """
    inputs = open_inputs(fn_args)
    started = time.monotonic()
    trained = train(inputs).with_notes(inputs.notes)
    seconds = time.monotonic() - started
    problem, settings = inputs.data.problem, inputs.settings
    export_model(trained.model, inputs.tft_output, problem, settings, fn_args.serving_model_dir)
    record = describe(settings, inputs.runtime, trained, seconds)
    tf.io.gfile.makedirs(fn_args.model_run_dir)  # The training may not have written into it.
    write_record(fn_args.model_run_dir, with_cross_validation(record, train, inputs))


def train(inputs: TrainingInputs) -> TrainingResult:
    """Grows the trees of a model.

    Args:
      inputs: the settings, a strategy of one device, and the data.

    Raises:
      TrainingError: the train split does not fit into memory.
    """
    settings, problem, split = inputs.settings, inputs.data.problem, inputs.data.train
    examples = tree_examples(split)
    if examples is None:
        raise TrainingError(
            f"model 'trees' needs the train split in memory, but its {split.examples:,} examples "
            "do not fit; use a machine with more memory, fewer rows or columns, or a network, "
            "such as `model: mlp`."
        )
    started = time.monotonic()
    folds = _divide(split, settings)

    def report(done: int, detail: str) -> None:
        report_progress(done, folds.count, f"{inputs.prefix}forest", detail, ABOUT)

    if settings.model.forest == "boosted":
        grown = grow(examples, problem, settings, folds, report)
    else:
        grown = _grow_averaged(inputs, examples, folds, report)
    seconds = time.monotonic() - started
    _write_curves(grown.history, inputs.model_run_dir)
    factor = 1.0
    if problem.log_range:
        unseen = problem.unstandardise(grown.unseen[:, 0])
        factor = bias_factor(examples.label, unseen, examples.weight)
    move_thresholds(grown.forest, examples.values)
    with inputs.strategy.scope():
        model = build_model(problem, grown.forest)
        correct_bias(model, factor)
    return TrainingResult(
        model=model,
        # Each step uses the whole train split.
        train=replace(split, batch_size=split.examples, rounds=1),
        evaluation=inputs.data.evaluation,
        history=grown.history,
        best_epoch=grown.largest_member,
        epoch_seconds=[seconds / folds.count],
        notes=_notes(grown, folds.count, settings.model),
        extras={"trees": len(grown.forest.roots), "importances": grown.importances},
    )


def _grow_averaged(
    inputs: TrainingInputs, examples: TreeExamples, folds: Folds, report: Report
) -> GrownForest:
    """Grows a random forest, or extremely randomised trees, with its loss on unseen examples."""
    alike, problem = without_class_weights(inputs.data, examples)
    model, seed = inputs.settings.model, inputs.settings.train.global_seed
    options = model.random if model.forest == "random" else model.extra
    return grow_averaged(model.forest, alike, problem, folds, model.trees, seed, options, report)


def without_class_weights(
    data: TrainingData, examples: TreeExamples
) -> tuple[TreeExamples, Problem]:
    """Returns the examples and the problem of forests that learn the frequencies in the data.

    Weights of classes hardly change the pure leaves of deep trees, so that no shift of the logits
    could correct them. The examples of a class of weight 0 have the weight 0.
    """
    weight, by_class = weights_of_data(data.train), data.problem.class_weights
    if 0 in by_class:
        is_learnt = np.asarray(by_class, np.float32)[examples.label] > 0
        weight = is_learnt * (1 if weight is None else weight)
    return replace(examples, weight=weight), replace(data.problem, class_weights=())


def weights_of_data(train: Split) -> np.ndarray | None:
    """Returns the weights in the data, [examples], without those of classes; None if all are 1."""
    weight, tensors = train.reader.problem.weight, train.content.tensors
    return tensors[weight].numpy().ravel() if weight and tensors else None


def _divide(split: Split, settings: TrainerSettings) -> Folds:
    """Returns the parts of the examples that are held out, one from each forest."""
    content = split.content
    count, units = content.examples, count_units(content)
    if settings.train.early_stopping in (None, False) or count < PARTS or units == 1:
        return Folds(Parts(np.full(count, -1)), 1)
    divided = divide_examples(content, min(PARTS, units), settings.train.seed)
    remaining = exempt_rare_classes(divided, content)
    if divided.is_ordered:
        return Folds(remaining, count_members(min(PARTS, units), count))
    if content.groups is None:
        return Folds(remaining, count_members(PARTS, count))
    parts = int(divided.part_of.max()) + 1
    part_of, usable = renumber(remaining.part_of, parts, count / PARTS)
    return Folds(Parts(part_of), count_members(max(1, usable), count))


def count_members(parts: int, examples: int) -> int:
    """Returns the number of models that are averaged, each with another part held out."""
    return min(MEMBERS, parts, max(1, SINGLE_FOREST_EXAMPLES // examples))


def _write_curves(history: Mapping[str, Sequence[float]], log_directory: str) -> None:
    """Writes TensorBoard curves to the files of Keras's callback, with a step per tree."""
    for folder, name in (("train", "loss"), ("validation", "val_loss")):
        _write_curve(os.path.join(log_directory, folder), history.get(name, []))


def _write_curve(directory: str, losses: Sequence[float]) -> None:
    writer = tf.summary.create_file_writer(directory)
    points = tf.constant(losses, tf.float32)

    @tf.function  # In Python, 1,000 points take a second.
    def write() -> None:
        with writer.as_default():
            for step in tf.range(len(losses), dtype=tf.int64):
                tf.summary.scalar("epoch_loss", points[step], step)

    write()
    writer.flush()


def _notes(grown: GrownForest, members: int, model: ModelSettings) -> list[str]:
    """Returns notes on the number of trees and on the most important columns."""
    ranked = list(grown.importances.items())[:MAX_LISTED_COLUMNS]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in ranked)
    importance = f"most important: {shown}" if shown else "no column reduces the loss"
    return [f"trees: {_describe_size(grown, members, model)}", f"trees: {importance}"]


def _describe_size(grown: GrownForest, members: int, model: ModelSettings) -> str:
    """Returns the number of trees and the reason for it."""
    if grown.forest.is_averaged:
        count = len(grown.forest.roots)
        is_limited = count < model.trees // members * members
        reason = f", as the leaves of {model.trees} have too many values" if is_limited else ""
        return f"{counted(count, 'averaged tree')}{reason}"
    if not grown.stopped_early:
        return f"{model.trees}, the limit; a larger model.trees may improve the model"
    forests = f"{members} forests" if members > 1 else "a forest"
    return (
        f"{forests} of at most {grown.largest_member} trees, as early stopping on a tenth of the "
        f"train split ended before the limit of {model.trees}"
    )
