"""Chooses whether a regression learns the label or its logarithm.

`task.target: auto` compares both with quick models, boosted trees and a linear model, on examples
that they have not seen. All models of a run then learn the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import tensorflow as tf

from trainer_module.data.loading import SplitCache, TrainingData
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.tasks.numbers import AUTO_TARGET, RegressionTask
from trainer_module.settings import TrainerSettings
from trainer_module.settings.train import is_usual
from trainer_module.strategies.coordinator import all_workers_equal

if TYPE_CHECKING:
    from trainer_module.families.supervised.log_comparison import Gain

MIN_DEVIATION = 0.5
"""The standard deviation of the logarithms below which `auto` learns the label itself: with less,
95 % of the labels differ by at most a factor of 7, so that little could be gained."""


def with_target(
    data: TrainingData,
    settings: TrainerSettings,
    strategy: tf.distribute.Strategy,
    cache: SplitCache,
) -> tuple[TrainingData, tuple[str, ...]]:
    """Returns the data with the problem of learning logarithms if they are to be learnt, and notes.

    All synchronous workers call the function, and get the same problem.

    Args:
      data: the data, whose problem is that of learning the label itself.
      settings: the settings of the model and its training.
      strategy: the strategy of the training.
      cache: a cache of the comparison, which this function fills.

    Raises:
      TrainingError: `task.target` is `log`, but some labels are not above 0.
    """
    task, content = data.problem.target, data.train.content
    if not isinstance(task, RegressionTask):
        return data, ()
    if task.target != AUTO_TARGET:
        return (_of_logarithms(data), ()) if task.target == "log" else (data, ())
    if content.not_positive or content.log_deviation < MIN_DEVIATION or _is_own(settings):
        return data, ()
    learnt = _of_logarithms(data)
    key = ("logarithms", learns_mean(settings), *data.train.reader.patterns)
    if key not in cache:
        # The comparison imports scikit-learn, which takes a second.
        from trainer_module.families.supervised.log_comparison import compare

        cache[key] = compare(data, learnt.problem, learns_mean(settings))
    gains: Mapping[str, Gain] = cache[key]
    is_log = _is_better(gains)
    if data.train.workers > 1:
        is_log = all_workers_equal(strategy, is_log) and is_log
    return (learnt if is_log else data), tuple(_notes(gains, is_log))


def _is_own(settings: TrainerSettings) -> bool:
    """Returns whether the user's own code, or a limit in the label's unit, expects the label."""
    loss = settings.train.loss
    return settings.model.is_custom or bool(loss and (loss.is_custom or loss.delta))


def learns_mean(settings: TrainerSettings) -> bool:
    """Returns whether predictions are means of labels; with other losses they are medians."""
    loss = settings.train.loss
    return loss is None or is_usual(loss.kind, settings.label_task.kind)


def _of_logarithms(data: TrainingData) -> TrainingData:
    content, problem = data.train.content, data.problem
    if content.not_positive:
        raise TrainingError(
            f"task.target: log needs labels above 0, but {content.not_positive:,} of the "
            f"{content.examples:,} rows of the train split have a {problem.label!r} of 0 or less; "
            f"the least is {content.least_label:g}. Write `task: {{kind: regression, target: "
            "plain}`, or remove these rows."
        )
    deviation = content.log_deviation
    # A factor beyond the labels of the train split, as an exponential would magnify outliers.
    log_range = (
        math.log(content.least_label) - deviation,
        math.log(content.largest_label) + deviation,
    )
    learnt = replace(
        problem, label_mean=content.log_mean, label_deviation=deviation, log_range=log_range
    )
    return replace(data, problem=learnt)


def _is_better(gains: Mapping[str, Gain]) -> bool:
    """Returns whether one of the losses is clearly lower, and none is higher."""
    found = gains.values()
    return any(gain.is_clear for gain in found) and all(gain.share >= 0 for gain in found)


def _notes(gains: Mapping[str, Gain], is_log: bool) -> Iterator[str]:
    """Yields a note on what is learnt, and why, if both were compared."""
    if not gains:
        return
    shown = " and ".join(
        f"{abs(gain.share):.0%} {_direction(gain)} {name}" for name, gain in gains.items()
    )
    yield (
        f"target: {'log' if is_log else 'plain'}, as quick models of the logarithm have {shown} on "
        f"unseen examples{'' if is_log else '; log has to be clearly better'}"
    )


def _direction(gain: Gain) -> str:
    return "less" if gain.share >= 0 else "more"
