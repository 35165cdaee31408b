"""What is to be learnt, and the examples of both splits, as a training needs them."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer_module.data.augmentation import make_augmentation
from trainer_module.data.distributions import measure_quartiles
from trainer_module.data.examples import Content, Reader
from trainer_module.data.input_pipeline import EVAL_BATCH, Split
from trainer_module.data.weights import Weighting, weights_by_class
from trainer_module.features.names import ASIDE
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings
from trainer_module.settings.length import choose_batch_size, choose_rounds
from trainer_module.settings.models import ZOO
from trainer_module.strategies.agreement import agree
from trainer_module.strategies.base import Processes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingData:
    """What is to be learnt, and the examples."""

    problem: Problem
    train: Split
    evaluation: Split


Known = dict[Any, tuple[Reader, Content]]
"""What has been read, by its files and tensors: the trials of a search read the same again."""


def load_data(
    fn_args: Any,
    tft_output: tft.TFTransformOutput,
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    workers: int,
    known: Known | None = None,
) -> TrainingData:
    """The train split, shuffled every epoch, and the eval split, in order.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes.
      tft_output: what Transform gave.
      settings: of the model and its training.
      strategy: whose replicas share each step.
      workers: processes that read the same files.
      known: what need not be read again; grows.

    Raises:
      TrainingError: if a split has nothing to learn from.
    """
    problem = Problem.from_transform(
        tft_output, settings.target, settings.label, settings.features, settings.weight
    )
    problem = _without_refused(problem, settings.model.kind)
    inputs = {feature.name for feature in problem.features} | {problem.label, problem.weight}
    returned = tft_output.transformed_feature_spec()
    spec = {name: returned[name] for name in returned if name in inputs}
    aside = {name: returned[name] for name in returned if name in ASIDE}
    in_step = workers if settings.train.strategy.processes is Processes.IN_STEP else 1

    replicas = strategy.num_replicas_in_sync

    known = {} if known is None else known

    def read(name: str, files: list[str]) -> tuple[Reader, Content]:
        key = (*files, *sorted(spec))
        if key not in known:
            reader = Reader(files, spec, problem, aside=aside)
            known[key] = reader, reader.read(name, processes=workers)
        return known[key]

    # Most of it is done by TensorFlow, with other threads of its own for each split.
    with ThreadPoolExecutor(1) as other:
        reading = other.submit(read, "eval", fn_args.eval_files)
        found = [read("train", fn_args.train_files), reading.result()]
    if in_step > 1:
        for _, content in found:
            if not agree(strategy, content.tensors is not None):
                content.tensors = None  # They do not fit on every worker.
    (reader, content), held_out = found
    batch_size = choose_batch_size(settings.train, content.examples, replicas)
    train = Split(reader, content, batch_size, replicas, in_step, settings.train.seed).fitted()
    by_class = weights_by_class(
        settings.train.class_weights, problem.label, problem.classes, content.weight_sums
    )
    weighting = Weighting.over(by_class, content.weight_sums, content.examples)
    rounds = choose_rounds(settings.train, train.steps)
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


def _without_refused(problem: Problem, kind: str) -> Problem:
    """Without the columns that the model cannot take, which nobody has declared to be so."""
    refuses = ZOO[kind].refuses if kind in ZOO else ()
    refused = [feature.name for feature in problem.features if feature.kind in refuses]
    if not refused:
        return problem
    logger.warning(
        "model %s takes no %s: leaves out %s", kind, " or ".join(refuses), ", ".join(refused)
    )
    return replace(problem, features=tuple(f for f in problem.features if f.name not in refused))
