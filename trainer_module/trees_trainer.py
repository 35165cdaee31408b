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

from trainer_module.data.dealing import Parts, count_units, divide_examples, exempt_rare_classes
from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.export.saving import export_model
from trainer_module.families.supervised.tasks.layers import correct_bias
from trainer_module.families.supervised.tasks.numbers import bias_factor
from trainer_module.families.supervised.trees.growing import GrownForest, grow, tree_examples
from trainer_module.families.supervised.trees.model import build_model
from trainer_module.record import describe, with_cross_validation
from trainer_module.runtime import report_progress, write_record
from trainer_module.settings import TrainerSettings
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
    parts, members = _divide(split, settings)

    def report(done: int, detail: str) -> None:
        report_progress(done, members, f"{inputs.prefix}forest", detail)

    grown = grow(examples, problem, settings, parts, members, report)
    seconds = time.monotonic() - started
    _write_curves(grown.history, inputs.model_run_dir)
    factor = 1.0
    if problem.log_range:
        unseen = problem.unstandardise(grown.unseen[:, 0])
        factor = bias_factor(examples.label, unseen, examples.weight)
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
        epoch_seconds=[seconds / members],
        notes=_notes(grown, members, settings.model.trees),
        extras={"trees": len(grown.forest.roots), "importances": grown.importances},
    )


def _divide(split: Split, settings: TrainerSettings) -> tuple[Parts, int]:
    """Returns the held-out part of each example, and the number of forests to grow."""
    content = split.content
    count, units = content.examples, count_units(content)
    if settings.train.early_stopping in (None, False) or count < PARTS or units == 1:
        return Parts(np.full(count, -1)), 1
    parts = min(PARTS, units)
    divided = divide_examples(content, parts, settings.train.seed)
    return exempt_rare_classes(divided, content), count_members(parts, count)


def count_members(parts: int, examples: int) -> int:
    """Returns the number of models that are averaged, each with another part held out."""
    return min(MEMBERS, parts, max(1, SINGLE_FOREST_EXAMPLES // examples))


def _write_curves(history: Mapping[str, Sequence[float]], log_directory: str) -> None:
    """Writes TensorBoard curves to the files of Keras's callback, with a step per tree."""
    for folder, name in (("train", "loss"), ("validation", "val_loss")):
        writer = tf.summary.create_file_writer(os.path.join(log_directory, folder))
        with writer.as_default():
            for step, value in enumerate(history.get(name, [])):
                tf.summary.scalar("epoch_loss", value, step)


def _notes(grown: GrownForest, members: int, max_trees: int) -> list[str]:
    """Returns notes on the number of trees and on the most important columns."""
    ranked = list(grown.importances.items())[:MAX_LISTED_COLUMNS]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in ranked)
    importance = f"most important: {shown}" if shown else "no column reduces the loss"
    forests = f"{members} forests" if members > 1 else "a forest"
    size = (
        f"trees: {forests} of at most {grown.largest_member} trees, as early stopping on a tenth "
        f"of the train split ended before the limit of {max_trees}"
        if grown.stopped_early
        else f"trees: {max_trees}, the limit; a larger model.trees may improve the model"
    )
    return [size, f"trees: {importance}"]
