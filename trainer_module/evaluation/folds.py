"""Cross-validation: the train split in parts, each held out once from a training on the others."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.settings import Task

FOLDS_FOLDER = "folds"
"""In the folders of a training: that which has one for each fold."""


def deal(train: Split, folds: int) -> np.ndarray:
    """For each record in order the fold that holds it out; -1 for those that are not usable.

    Classes are dealt one after the other, so that each fold has its part of a rare one. It depends
    on the examples and the seed alone: all processes and a training that goes on find the same.

    Raises:
      TrainingError: there are fewer examples than folds.
    """
    if train.examples < folds:
        raise TrainingError(
            f"evaluate.folds: {folds} folds need as many examples, but the train split has "
            f"{train.examples}; take fewer folds."
        )
    classes = None if train.reader.problem.task is Task.REGRESSION else _labels(train)
    fold_of = np.full(len(train.content.usable), -1)
    fold_of[train.content.usable] = deal_out(classes, train.examples, folds, train.shuffle_seed)
    return fold_of


def deal_out(classes: np.ndarray | None, examples: int, parts: int, seed: int | None) -> np.ndarray:
    """The part that each example belongs to, [examples], at random.

    Args:
      classes: of each example, dealt one after the other; None if there are none.
      examples: how many there are.
      parts: how many are wanted.
      seed: of the order.
    """
    order = np.random.default_rng(seed).permutation(examples)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    dealt = np.empty(examples, int)
    dealt[order] = np.arange(examples) % parts
    return dealt


def make_fold(
    train: Split, evaluation: Split, fold_of: np.ndarray, fold: int
) -> tuple[Split, Split]:
    """The examples to train on, and those held out.

    Args:
      train: what was dealt out.
      evaluation: evaluated as those held out will be.
      fold_of: the fold of each record.
      fold: which one is held out.
    """
    learnt = (fold_of >= 0) & (fold_of != fold)
    return _only(train, learnt).fitted(), _only(train, fold_of == fold, like=evaluation)


def _labels(train: Split) -> np.ndarray:
    """The class of each usable example."""
    tensors = train.content.tensors
    if tensors is None:
        return train.reader.read_labels()
    return tensors[train.reader.problem.label].numpy().ravel()


def _only(train: Split, chosen: np.ndarray, like: Split | None = None) -> Split:
    """Those records of the train split, to train on, or to be evaluated as another split is."""
    reader, content = train.reader.only(chosen), train.content.only(chosen)
    return replace(like or train, reader=reader, content=content)


def summarize(measured: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """By metric its value on each fold, their mean and their standard deviation."""
    return {
        name: {
            "values": (values := [metrics[name] for metrics in measured]),
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values),
        }
        for name in measured[0]
    }
