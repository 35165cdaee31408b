"""The `run_fn` of an ensemble: trains a network, trees and a linear model, and weights them.

The members share Transform's output. Each of them predicts examples of the train split that it has
not seen; these predictions determine the weights and the calibration. The eval split is not used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tf_keras

from trainer_module.data.dealing import (
    LARGE_SPLIT,
    Parts,
    count_units,
    divide_examples,
    exempt_rare_classes,
    make_fold,
    of_records,
)
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.errors import TrainingError, shorten
from trainer_module.families.supervised.ensemble.averaged import grow_averaged
from trainer_module.families.supervised.ensemble.boosted import Boosted, grow_boosted
from trainer_module.families.supervised.ensemble.linear import fit_linear
from trainer_module.families.supervised.ensemble.member import Folds, Member
from trainer_module.families.supervised.ensemble.model import build_ensemble
from trainer_module.families.supervised.ensemble.weights import (
    Labels,
    calibration_error,
    divide_logits,
    mean,
    select,
    temperature,
    unseen_loss,
)
from trainer_module.families.supervised.tasks.numbers import bias_factor
from trainer_module.families.supervised.trees.growing import TreeExamples, tree_examples
from trainer_module.problem import Problem
from trainer_module.runtime import report_progress
from trainer_module.settings.model import NETWORK_MEMBER
from trainer_module.trainer import train as train_network
from trainer_module.training.folds import train_best_length, train_on_part
from trainer_module.training.plan import TrainingInputs, TrainingResult
from trainer_module.trees_trainer import count_members, train_and_export

logger = logging.getLogger(__name__)


def run_fn(fn_args: Any) -> None:
    """Trains the members and exports their weighted mean.

    Args:
      fn_args: the arguments of `trainer_module.trainer.run_fn`.

    Raises:
      TrainingError: the data cannot be used, or no member can be trained.
    """
    train_and_export(train, fn_args)


def train(inputs: TrainingInputs) -> TrainingResult:
    """Trains the members of an ensemble.

    Args:
      inputs: the settings, a strategy of one process, and the data.

    Raises:
      TrainingError: no member can be trained.
    """
    examples = tree_examples(inputs.data.train)
    if examples is None:
        return _network_alone(inputs, "the train split does not fit into memory")
    if not examples.columns:
        return _network_alone(inputs, "there are no columns of numbers or categories")
    folds = _divide(inputs.data.train)
    trainings = _MemberTrainings(inputs)
    for name, fit in _fits(inputs, examples, folds, trainings):
        trainings.try_member(name, fit)
    if NETWORK_MEMBER in trainings.names:
        trainings.try_member(NETWORK_MEMBER, lambda: _fit_network(inputs, folds, trainings))
    return _join(trainings, _labels(inputs.data.problem, inputs.data.train, examples))


def _labels(problem: Problem, train: Split, examples: TreeExamples) -> Labels:
    """Returns the labels with the weights of the data, without those of classes.

    All members predict the frequencies of the data, whatever the weights of the classes.
    """
    tensors = train.content.tensors
    weight = tensors[problem.weight].numpy().ravel() if problem.weight and tensors else None
    return Labels(problem, examples.label, weight)


def _weights_of_data(data: TrainingData, examples: TreeExamples) -> np.ndarray | None:
    """Returns the weights of the data, 0 for classes of weight 0; None if all count alike."""
    weight, by_class = (
        _labels(data.problem, data.train, examples).weight,
        data.problem.class_weights,
    )
    if 0 not in by_class:
        return weight
    is_learnt = np.asarray(by_class, np.float32)[examples.label] > 0
    return is_learnt * (1 if weight is None else weight)


def _network_alone(inputs: TrainingInputs, reason: str) -> TrainingResult:
    if NETWORK_MEMBER not in inputs.settings.model.ensemble_members:
        raise TrainingError(
            f"no member of the ensemble can be trained, as {reason}; add {NETWORK_MEMBER} to "
            "model.members."
        )
    trained = train_best_length(train_network, inputs)
    note = f"ensemble: {reason}, so that the network is the only member"
    return replace(trained, notes=[*trained.notes, note])


@dataclass
class _MemberTrainings:
    """The members that have been trained, and the failures of the others."""

    inputs: TrainingInputs
    members: dict[str, Member] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    network: TrainingResult | None = None
    boosted: Boosted | None = None

    @property
    def names(self) -> list[str]:
        """The names of the members to train, in their order."""
        return list(self.inputs.settings.model.ensemble_members)

    def try_member(self, name: str, fit: Callable[[], Member]) -> None:
        """Trains a member; a failure leaves the other members."""
        started = time.monotonic()
        try:
            found = fit()
            if np.isinf(found.unseen).any():
                raise TrainingError("some of its predictions of unseen examples are infinite")
            self.members[name] = found
        except (TrainingError, MemoryError, ValueError) as error:
            logger.warning("member %s of the ensemble failed", name, exc_info=True)
            self.failures[name] = error
        self.seconds[name] = time.monotonic() - started
        done = len(self.members) + len(self.failures)
        report_progress(done, len(self.names), f"{self.inputs.prefix}member", name)


def _fits(
    inputs: TrainingInputs, examples: TreeExamples, folds: Folds, trainings: _MemberTrainings
) -> Iterator[tuple[str, Callable[[], Member]]]:
    """Yields the name and the training of each member except for the network."""
    problem, settings = inputs.data.problem, inputs.settings

    def boosted() -> Member:
        trainings.boosted = grow_boosted(examples, problem, settings, folds)
        return trainings.boosted.member

    def averaged(kind: str) -> Callable[[], Member]:
        """Returns the training of forests that learn the frequencies of the classes in the data.

        Weights of classes hardly change the pure leaves of deep trees, so that no shift of the
        logits could correct them.
        """
        alike = replace(examples, weight=_weights_of_data(inputs.data, examples))
        plain = replace(problem, class_weights=())
        return lambda: grow_averaged(kind, alike, plain, folds, settings.train.global_seed)

    fits = {
        "boosted": boosted,
        "random": averaged("random"),
        "extra": averaged("extra"),
        "linear": lambda: fit_linear(examples, problem, folds, settings.train.global_seed),
    }
    yield from ((name, fits[name]) for name in trainings.names if name != NETWORK_MEMBER)


def _divide(train: Split) -> Folds:
    """Divides the usable examples of the train split like `hold_out`."""
    content = train.content
    wanted = 10 if content.examples > LARGE_SPLIT else 5
    if count_units(content) < 2:
        return Folds(Parts(np.full(content.examples, -1)), 1)
    divided = divide_examples(content, min(wanted, count_units(content)), train.shuffle_seed)
    remaining = exempt_rare_classes(divided, content)
    if divided.is_ordered:
        return Folds(remaining, 1)
    parts = int(divided.part_of.max()) + 1
    part_of, count = _renumber(remaining.part_of, parts, content.examples / wanted)
    return Folds(Parts(part_of), count_members(max(1, count), content.examples))


def _renumber(part_of: np.ndarray, parts: int, size: float) -> tuple[np.ndarray, int]:
    """Returns the parts in the order in which they are held out, and the number of those that have
    examples.

    The first part, which the network holds out, is the one with the nearest size, as groups may be
    of very different sizes. The examples in no part, whose number is `parts`, keep it.
    """
    sizes = np.bincount(part_of, minlength=parts)[:parts]
    used = np.flatnonzero(sizes)
    order = used[np.argsort(np.abs(sizes[used] - size), kind="stable")]
    numbers = np.full(parts + 1, parts)
    numbers[order] = np.arange(len(order))
    return numbers[part_of], len(order)


def _fit_network(inputs: TrainingInputs, folds: Folds, trainings: _MemberTrainings) -> Member:
    data = inputs.data
    content = data.train.content
    unseen = np.full((content.examples, data.problem.output_units), np.nan)
    held_out = folds.held_out(0)
    if not len(held_out):
        trainings.network = trained = train_best_length(train_network, inputs)
    else:
        parts = make_fold(data.train, data.evaluation, of_records(folds.parts, content), 0)

        def predict(model: tf_keras.Model) -> None:
            if not inputs.base_model:
                unseen[held_out] = _predict(model, parts[1], data)

        trainings.network = trained = train_on_part(train_network, inputs, parts, predict)
    notes = (_MAY_HAVE_SEEN,) if inputs.base_model and len(held_out) else ()
    return Member(lambda given: trained.model(given), unseen, notes)


_MAY_HAVE_SEEN = (
    "the weight of the network does not depend on held-out examples, as its base model may have "
    "learnt from them"
)


def _predict(model: tf_keras.Model, split: Split, data: TrainingData) -> np.ndarray:
    """Returns the network's outputs for a split in memory, [examples, units]."""
    tensors = split.content.tensors
    assert tensors is not None  # noqa: S101 - a part of a split in memory
    features = {name: tensors[name] for name in model.input_names}
    found = model.predict(features, batch_size=split.batch_size, verbose=0)
    return np.asarray(found, np.float64).reshape(split.examples, data.problem.output_units)


def _join(trainings: _MemberTrainings, labels: Labels) -> TrainingResult:
    """Returns the weighted mean of the members as the result of the training."""
    if not trainings.members:
        name, error = next(iter(trainings.failures.items()))
        raise TrainingError(
            f"no member of the ensemble could be trained; {name}: {shorten(error)}"
        ) from error
    factors = {name: _factor(member, labels) for name, member in trainings.members.items()}
    unseen = {name: factors[name] * one.unseen for name, one in trainings.members.items()}
    weights = select(unseen, labels, NETWORK_MEMBER)
    blended = mean(unseen, weights)
    divisor = temperature(blended, labels)
    inputs = trainings.inputs
    with inputs.strategy.scope():
        model = build_ensemble(
            inputs.data.problem,
            {name: member.build for name, member in trainings.members.items()},
            {name: weight * factors[name] for name, weight in weights.items()},
            divisor,
        )
    trained = trainings.network or _without_network(inputs, trainings)
    return replace(
        trained,
        model=model,
        measured={},
        notes=[*trained.notes, *_notes(trainings, weights)],
        extras={**trained.extras, **_extras(trainings, labels, unseen, weights, divisor)},
    )


def _factor(member: Member, labels: Labels) -> float:
    """Returns the factor that removes the bias of exponentials of predicted logarithms."""
    if not labels.problem.log_range:
        return 1.0
    return bias_factor(labels.values, member.unseen[:, 0], labels.weight)


def _without_network(inputs: TrainingInputs, trainings: _MemberTrainings) -> TrainingResult:
    """Returns the result of a training in which no network was trained; its model is replaced."""
    split = inputs.data.train
    grown = trainings.boosted.grown if trainings.boosted else None
    return TrainingResult(
        model=tf_keras.Model(),
        train=replace(split, batch_size=split.examples, rounds=1),
        evaluation=inputs.data.evaluation,
        history=grown.history if grown else {"loss": []},
        best_epoch=grown.largest_member if grown else 0,
        epoch_seconds=[sum(trainings.seconds.values())],
    )


def _notes(trainings: _MemberTrainings, weights: Mapping[str, float]) -> Iterator[str]:
    """Yields notes on the members and their weights."""
    shown = ", ".join(f"{name} {weight:.0%}" for name, weight in _ranked(weights))
    yield f"ensemble: {shown}"
    if absent := [name for name in trainings.members if name not in weights]:
        yield f"ensemble: without {', '.join(absent)}, which would not improve the mean"
    for name in weights:
        yield from (f"ensemble: {note}" for note in trainings.members[name].notes)
    for name, error in trainings.failures.items():
        yield f"ensemble: member {name} failed and was left out: {shorten(error)}"


def _ranked(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(weights.items(), key=lambda pair: -pair[1])


def _extras(
    trainings: _MemberTrainings,
    labels: Labels,
    unseen: Mapping[str, np.ndarray],
    weights: Mapping[str, float],
    divisor: float,
) -> dict[str, Any]:
    """Returns the entries of the record: the members, the trees and the calibration."""
    blended = mean(unseen, weights)
    members = {
        name: {
            "weight": weights.get(name, 0.0),
            "unseen_loss": unseen_loss(unseen[name], labels),
            "seconds": round(trainings.seconds[name], 3),
        }
        for name in trainings.members
    }
    found: dict[str, Any] = {"members": members, "unseen_loss": unseen_loss(blended, labels)}
    if trainings.boosted:
        found["importances"] = trainings.boosted.grown.importances
    if labels.problem.task.is_classification:
        calibrated = divide_logits(labels.problem, blended, divisor) if divisor != 1 else blended
        found["temperature"] = divisor
        found["calibration_error"] = calibration_error(calibrated, labels)
    return found
