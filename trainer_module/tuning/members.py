"""The trials of an ensemble's automatic search, which train members with other settings.

A trial predicts the examples that its members hold out, as in the training of the ensemble. The
predictions of all trials determine the settings of each member.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.data.examples import Content
from trainer_module.ensemble_trainer import MemberTrainings
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.ensemble.choice import Judge, choose_candidates
from trainer_module.families.supervised.ensemble.weights import Labels, common_rows, mean, select
from trainer_module.problem import Problem
from trainer_module.settings.model import NETWORK_MEMBER
from trainer_module.training.plan import TrainingInputs, TrainingResult
from trainer_module.tuning.plan import MEMBERS, Measured, MemberTrial
from trainer_module.tuning.space import Values

UNSEEN_FILE = "unseen.npz"
"""The file of the predictions of unseen examples, in the folder of a trial."""

Outputs = Mapping[str, np.ndarray]
"""The predictions of unseen examples by member, [examples, units]; NaN for seen examples."""


def train_members(inputs: TrainingInputs, folder: str) -> tuple[Measured, TrainingResult | None]:
    """Trains the members of `inputs` and writes their predictions.

    Args:
      inputs: the settings and the whole train split.
      folder: the folder of the trial.

    Returns:
      The ensemble's metrics, and the training of the network if it is a member.

    Raises:
      TrainingError: no member can be trained, or no examples can be held out.
    """
    trainings = MemberTrainings.of(inputs)
    trainings.run()
    trainings.check()
    unseen = trainings.unseen
    write_outputs(folder, unseen)
    return _measure(unseen, trainings.labels, inputs.data.problem), trainings.network


def write_outputs(folder: str, outputs: Outputs) -> None:
    """Writes the predictions of a trial."""
    values: dict[str, Any] = {name: one.astype(np.float32) for name, one in outputs.items()}
    np.savez(os.path.join(folder, UNSEEN_FILE), **values)


def read_outputs(folder: str) -> dict[str, np.ndarray]:
    """Returns the predictions of a trial."""
    with np.load(os.path.join(folder, UNSEEN_FILE)) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays.files}


def _measure(outputs: Outputs, labels: Labels, problem: Problem) -> Measured:
    """Returns the metrics of `problem`, with those of the objective of the search."""
    weights = select(outputs, labels, NETWORK_MEMBER)
    blended = mean(outputs, weights)
    rows = common_rows({"": blended})
    if not len(rows):
        raise TrainingError(
            "tune: auto compares members of an ensemble on rows that they hold out, but all rows "
            "have the same group (data.split_by) or time (data.order_by); remove tune."
        )
    metrics = {"loss": labels.only(rows).loss(blended[rows])}
    label = tf.constant(labels.values[rows].reshape(-1, 1))
    predicted = tf.constant(blended[rows], tf.float32)
    for metric in problem.make_metrics():
        metric.update_state(label, predicted)
        metrics[metric.name] = float(metric.result())
    return Measured(metrics, len(rows), weights)


def join_trials(
    trials: Sequence[MemberTrial], inputs: TrainingInputs
) -> tuple[dict[str, Any], Measured]:
    """Returns the values of the best ensemble by config key, and its metrics.

    There are no values if no other settings are better than those of the config beyond chance.

    Args:
      trials: the completed trials. The first trained the ensemble of the config, each of the others
        one member.
      inputs: the inputs of the trials.
    """
    labels = MemberTrainings.of(inputs).labels
    config, *others = trials
    candidates = {name: [outputs] for name, outputs in read_outputs(config.folder).items()}
    values: dict[str, list[Values]] = {name: [{}] for name in candidates}
    for trial in others:
        (name,) = trial.values[MEMBERS]
        if name in candidates:  # The member of the config may have failed.
            candidates[name].append(read_outputs(trial.folder)[name])
            values[name].append(trial.values)
    judge = _judge(inputs.data.train.content, labels)
    choice = choose_candidates(candidates, judge, NETWORK_MEMBER)
    joined: dict[str, Any] = {}
    for name, index in choice.items():
        joined |= {path: v for path, v in values[name][index].items() if path != MEMBERS}
    chosen = {name: candidates[name][index] for name, index in choice.items()}
    return joined, _measure(chosen, labels, inputs.data.problem)


def _judge(content: Content, labels: Labels) -> Judge:
    keys = content.groups if content.times is None else content.times
    if keys is None:
        keys = np.arange(content.examples)
    _, units = np.unique(keys, return_inverse=True)
    return Judge(labels, units, content.times is not None)
