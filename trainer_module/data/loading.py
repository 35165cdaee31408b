"""Loads the learning problem and the examples of both splits for training."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.data.augmentation import make_augmentation
from trainer_module.data.examples import Content, Reader, Tensors
from trainer_module.data.input_pipeline import EVAL_BATCH, Split, Weighting, weights_by_class
from trainer_module.data.order import spread_rows
from trainer_module.features.base import SPLIT_KEYS
from trainer_module.problem import Problem
from trainer_module.runtime import report_step
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import ZOO
from trainer_module.settings.train import choose_batch_size, choose_rounds
from trainer_module.strategies.base import Processes
from trainer_module.strategies.coordinator import all_workers_equal

MAX_QUARTILE_EXAMPLES = 65_536
"""The maximum number of examples from which quartiles are computed."""


def measure_quartiles(reader: Reader, content: Content) -> dict[str, np.ndarray]:
    """Returns the minimum, the quartiles and the maximum, [5, n], of each numeric feature, by name.

    The quartiles of a large split are computed from an even sample.

    Args:
      reader: the reader of the train split.
      content: the content of the train split.
    """
    names = [feature.name for feature in reader.problem.of_kind("numeric")]
    if not names:
        return {}
    rows = spread_rows(content.examples, MAX_QUARTILE_EXAMPLES)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    begin = 0
    for batch in _batches(reader, content, names):
        end = begin + len(batch[names[0]])
        sampled = rows[slice(*np.searchsorted(rows, [begin, end]))] - begin
        for name in names:
            parts[name].append(batch[name].numpy()[sampled])
        begin = end
    return {name: _quartiles(np.concatenate(loaded)) for name, loaded in parts.items()}


def _batches(reader: Reader, content: Content, names: list[str]) -> Iterator[Tensors]:
    """Yields all usable examples in batches.

    If the split is not in memory, only the needed columns are parsed.
    """
    if content.tensors is not None:
        yield content.tensors
        return
    needed = {*names, reader.problem.label, reader.problem.weight or reader.problem.label}
    spec = {name: reader.spec[name] for name in needed}
    yield from replace(reader, spec=spec).stream(reader.records())


def _quartiles(values: np.ndarray) -> np.ndarray:
    return np.quantile(values.reshape(len(values), -1), np.linspace(0, 1, 5), axis=0)


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """The learning problem, and the examples of both splits."""

    problem: Problem
    train: Split
    evaluation: Split


SplitCache = dict[Any, Any]
"""A cache of read splits by their files and tensors, and of measurements of them: the trials of a
search read the same splits."""


def load_data(
    fn_args: Any,
    tft_output: tft.TFTransformOutput,
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    workers: int,
    cache: SplitCache | None = None,
) -> TrainingData:
    """Returns the problem, the train split, which is shuffled in every epoch, and the eval split.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes.
      tft_output: the output of Transform.
      settings: the settings of the model and its training.
      strategy: the strategy whose replicas share each step.
      workers: the number of processes that read the same files.
      cache: a cache of read splits, which this function fills.

    Raises:
      TrainingError: a split has no usable example.
    """
    problem = Problem.from_transform(
        tft_output, settings.label_task, settings.label, settings.features, settings.weight
    )
    problem = _without_rejected_features(problem, settings.model.kind)
    inputs = {feature.name for feature in problem.features} | {problem.label, problem.weight}
    returned = tft_output.transformed_feature_spec()
    spec = {name: returned[name] for name in returned if name in inputs}
    split_keys = {name: returned[name] for name in returned if name in SPLIT_KEYS}
    in_step = workers if settings.train.strategy.processes is Processes.IN_STEP else 1

    replicas = strategy.num_replicas_in_sync

    cache = {} if cache is None else cache

    def read(name: str, files: list[str]) -> tuple[Reader, Content]:
        key = (*files, *sorted(spec))
        if key not in cache:
            report_step(f"reads the {name} split")
            reader = Reader(files, spec, problem, split_keys=split_keys)
            cache[key] = reader, reader.read(name, processes=workers)
        return cache[key]

    # A thread for each split is enough, because TensorFlow reads a split with several threads.
    with ThreadPoolExecutor(1) as other:
        reading = other.submit(read, "eval", fn_args.eval_files)
        loaded = [read("train", fn_args.train_files), reading.result()]
    if in_step > 1:
        for _, content in loaded:
            if not all_workers_equal(strategy, content.tensors is not None):
                content.tensors = None  # Some worker's memory is too small for the examples.
    (reader, content), held_out = loaded
    batch_size = choose_batch_size(settings.train, content.examples, replicas)
    train = Split(reader, content, batch_size, replicas, in_step, settings.train.seed).fitted()
    by_class = weights_by_class(
        settings.train.class_weights, problem.label, problem.classes, content.weight_sums
    )
    weighting = Weighting.over(by_class, content.weight_sums, content.examples)
    rounds = choose_rounds(settings.train, train.steps)
    train = replace(train, steps_per_epoch=settings.train.steps_per_epoch)
    augmentation = make_augmentation(settings.train.augment, problem, settings.train.seed)
    train = replace(train, rounds=rounds, weighting=weighting, augmentation=augmentation)
    eval_batch = max(train.batch_size, EVAL_BATCH)
    evaluation = Split(*held_out, eval_batch, replicas, in_step)
    evaluation = replace(evaluation, weighting=weighting)
    problem = replace(
        problem,
        label_mean=train.content.label_mean,
        label_deviation=train.content.label_deviation,
        quartiles=measure_quartiles(train.reader, train.content),
        loss=settings.train.loss.kind if settings.train.loss else "",
        class_weights=by_class,
    )
    return TrainingData(problem, train, evaluation)


def _without_rejected_features(problem: Problem, kind: str) -> Problem:
    """Returns the problem without features of types that the model does not accept."""
    refuses = ZOO[kind].refuses if kind in ZOO else ()
    refused = [feature.name for feature in problem.features if feature.kind in refuses]
    if not refused:
        return problem
    logger.warning(
        "model %s does not accept features of type %s: left out %s",
        kind,
        " or ".join(refuses),
        ", ".join(refused),
    )
    return replace(problem, features=tuple(f for f in problem.features if f.name not in refused))
