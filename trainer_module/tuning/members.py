"""The trials of an ensemble's automatic search, which train members with other settings.

A trial predicts the examples that its members hold out, as in the training of the ensemble. The
predictions of all trials determine the settings of each member.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.data.examples import Content
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.ensemble.choice import Judge, choose_candidates
from trainer_module.families.supervised.ensemble.weights import Labels, common_rows, mean
from trainer_module.settings.model import NETWORK_MEMBER
from trainer_module.tuning.plan import MEMBERS
from trainer_module.tuning.space import Values

UNSEEN_FILE = "unseen.npz"
"""The file of the predictions of unseen examples, in the folder of a trial."""

Outputs = Mapping[str, np.ndarray]


def save_outputs(folder: str, outputs: Outputs) -> None:
    """Writes the predictions of a trial, [examples, units] by member."""
    np.savez(
        os.path.join(folder, UNSEEN_FILE), **{k: v.astype(np.float32) for k, v in outputs.items()}
    )


def measure_outputs(
    outputs: Outputs, weights: Mapping[str, float], labels: Labels
) -> tuple[dict[str, float], int]:
    """Returns the metrics of an ensemble on the examples that no member has seen, and their number.

    Args:
      outputs: the predictions of unseen examples by member.
      weights: the weights of the members.
      labels: the labels of all examples.

    Raises:
      TrainingError: all examples have been seen.
    """
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
    for metric in labels.problem.make_metrics():
        metric.update_state(label, predicted)
        metrics[metric.name] = float(metric.result())
    return metrics, len(rows)


@dataclass(frozen=True)
class MemberTrial:
    """A completed trial: its values and the folder of its predictions."""

    values: Values
    folder: str

    def read(self) -> dict[str, np.ndarray]:
        """Returns the predictions of unseen examples, [examples, units] by member."""
        with np.load(os.path.join(self.folder, UNSEEN_FILE)) as arrays:
            return {name: arrays[name].astype(np.float64) for name in arrays.files}


def join_trials(
    trials: Iterable[MemberTrial], content: Content, labels: Labels
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the values of the best ensemble by config key, and its predictions by member.

    There are no values if no other settings are better than those of the config beyond chance.

    Args:
      trials: the completed trials. The first trained the ensemble of the config, each of the others
        one member.
      content: the content of the train split.
      labels: the labels of all examples.
    """
    config, *others = trials
    candidates = {name: [values] for name, values in config.read().items()}
    values: dict[str, list[Values]] = {name: [{}] for name in candidates}
    for trial in others:
        (name,) = trial.values[MEMBERS]
        if name in candidates:
            candidates[name].append(trial.read()[name])
            values[name].append(trial.values)
    choice = choose_candidates(candidates, _judge(content, labels), NETWORK_MEMBER)
    joined: dict[str, Any] = {}
    for name, index in choice.items():
        joined |= {path: v for path, v in values[name][index].items() if path != MEMBERS}
    return joined, {name: candidates[name][index] for name, index in choice.items()}


def _judge(content: Content, labels: Labels) -> Judge:
    keys = content.groups if content.times is None else content.times
    if keys is None:
        keys = np.arange(content.examples)
    _, units = np.unique(keys, return_inverse=True)
    return Judge(labels, units, content.times is not None)
