"""The `run_fn` of an ensemble: trains a network, trees and a linear model, and weights them.

The members share Transform's output. Each of them predicts examples of the train split that it has
not seen; these predictions determine the weights and the calibration. The eval split is not used.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.data.dealing import (
    LARGE_SPLIT,
    Folds,
    Parts,
    count_units,
    divide_examples,
    exempt_rare_classes,
    make_fold,
    of_records,
    renumber,
)
from trainer_module.data.input_pipeline import EVAL_BATCH, Split
from trainer_module.data.loading import TrainingData
from trainer_module.errors import DivergedError, MemberLimitError, TrainingError, shorten
from trainer_module.families.supervised.ensemble.boosted import grow_boosted
from trainer_module.families.supervised.ensemble.linear import fit_linear
from trainer_module.families.supervised.ensemble.member import Member, forest_member
from trainer_module.families.supervised.ensemble.model import build_ensemble
from trainer_module.families.supervised.ensemble.store import MemberStore, fingerprint
from trainer_module.families.supervised.ensemble.weights import (
    Labels,
    calibration_error,
    common_rows,
    divide_logits,
    mean,
    select,
    temperature,
    unseen_loss,
)
from trainer_module.families.supervised.tasks.numbers import bias_factor
from trainer_module.families.supervised.trees.averaging import grow_averaged
from trainer_module.families.supervised.trees.growing import TreeExamples, tree_examples
from trainer_module.families.supervised.trees.thresholds import move_thresholds
from trainer_module.problem import Problem
from trainer_module.runtime import report_part, report_progress, report_step
from trainer_module.settings.model import (
    AVERAGED_TREES,
    LINEAR_MEMBER,
    NETWORK_MEMBER,
    ForestSettings,
)
from trainer_module.trainer import train as train_network
from trainer_module.training.folds import train_best_length, train_on_part
from trainer_module.training.plan import TrainingInputs, TrainingResult
from trainer_module.trees_trainer import (
    count_members,
    train_and_export,
    weights_of_data,
    without_class_weights,
)

logger = logging.getLogger(__name__)

_EXCUSED = (DivergedError, MemberLimitError, MemoryError, tf.errors.ResourceExhaustedError)
"""The errors of a member that leave the other members; every other error ends the training."""

MAX_PREDICTIONS = 50_000_000
"""The largest number of examples times outputs, of which each member predicts the unseen ones at 8
bytes each."""


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
    if reason := _lacks(examples, inputs):
        return _network_alone(inputs, reason)
    assert examples is not None  # noqa: S101 - else there is a reason
    trainings = MemberTrainings(inputs, examples)
    trainings.run()
    return _join(trainings)


def _lacks(examples: TreeExamples | None, inputs: TrainingInputs) -> str:
    """Returns the reason why only a network can be trained on the examples; empty if none."""
    if examples is None:
        return "the train split does not fit into memory"
    rows, units = len(examples.label), inputs.data.problem.output_units
    if rows * units > MAX_PREDICTIONS:
        return f"the predictions of {units:,} classes for {rows:,} rows take too much memory"
    if examples.columns or (examples.bags and _able(examples, inputs)):
        return ""
    return "there are no columns of numbers or categories"


def _able(examples: TreeExamples, inputs: TrainingInputs) -> list[str]:
    """Returns the members that can read the examples; a `preprocessing_fn` may have returned other
    columns than the features of the config.
    """
    model = inputs.settings.model
    return model.members_that_read(columns=bool(examples.columns), bags=bool(examples.bags))


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
class MemberTrainings:
    """The members that have been trained, and the failures of the others."""

    inputs: TrainingInputs
    examples: TreeExamples
    is_trial: bool = False
    """Whether only predictions of unseen examples are needed, as in a search."""
    members: dict[str, Member] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    network: TrainingResult | None = None

    @classmethod
    def of(cls, inputs: TrainingInputs) -> MemberTrainings:
        """Returns the trainings of a trial.

        Raises:
          TrainingError: the train split does not fit into memory, or has no columns for the
            members.
        """
        examples = tree_examples(inputs.data.train)
        if reason := _lacks(examples, inputs):
            raise TrainingError(
                f"tune: auto cannot compare the members of an ensemble, as {reason}; write "
                f"model: {NETWORK_MEMBER}, or remove tune."
            )
        assert examples is not None  # noqa: S101 - else there is a reason
        return cls(inputs, examples, is_trial=True)

    @property
    def names(self) -> list[str]:
        """The names of the members to train, in their order."""
        return _able(self.examples, self.inputs)

    @property
    def unit(self) -> str:
        """The word for a member in the reported progress."""
        return f"{self.inputs.prefix}member"

    @functools.cached_property
    def folds(self) -> Folds:
        """The parts of the train split that members hold out."""
        return _divide(self.inputs.data.train)

    @functools.cached_property
    def labels(self) -> Labels:
        """The labels of all examples, with the weights of the data, without those of classes.

        All members predict the frequencies of the data, whatever the weights of the classes.
        """
        data = self.inputs.data
        return Labels(data.problem, self.examples.label, weights_of_data(data.train))

    @property
    def bias_factors(self) -> dict[str, float]:
        """The factors by member that remove the bias of exponentials of predicted logarithms."""
        labels = self.labels
        if not labels.problem.log_range:
            return dict.fromkeys(self.members, 1.0)
        return {
            name: bias_factor(labels.values, member.unseen[:, 0], labels.weight)
            for name, member in self.members.items()
        }

    @property
    def unseen(self) -> dict[str, np.ndarray]:
        """The unbiased predictions of unseen examples by member, [examples, units]."""
        factors = self.bias_factors
        return {name: factors[name] * member.unseen for name, member in self.members.items()}

    def run(self) -> None:
        """Trains the members; the network comes last, as it takes the longest."""
        store = None
        if not self.is_trial:
            key = fingerprint(self.examples, self.folds, self.inputs.settings)
            store = MemberStore(self.inputs.backup_directory, key)
        for name, problem, fit in _fits(self):
            resume = fit
            if store:
                resume = functools.partial(store.resume, name, fit, problem, self.examples.columns)
            self.try_member(name, resume)
        if NETWORK_MEMBER in self.names:
            self.try_member(NETWORK_MEMBER, lambda: _fit_network(self))

    def check(self) -> None:
        """Raises TrainingError with the first cause if no member could be trained."""
        if not self.members:
            name, error = next(iter(self.failures.items()))
            raise TrainingError(
                f"no member of the ensemble could be trained; {name}: {shorten(error)}"
            ) from error

    def try_member(self, name: str, fit: Callable[[], Member]) -> None:
        """Trains a member; one that diverges, or that the data is too large for, is left out."""
        started = time.monotonic()
        report_part(len(self.seconds) + 1, len(self.names), self.unit, name)
        try:
            found = fit()
            if np.isinf(found.unseen).any():
                raise DivergedError("some of its predictions of unseen examples are infinite")
            self.members[name] = found
        except _EXCUSED as error:
            logger.warning("member %s of the ensemble failed", name, exc_info=True)
            self.failures[name] = error
        self.seconds[name] = time.monotonic() - started
        report_progress(len(self.seconds), len(self.names), self.unit, name)

    def report_forest(self, name: str, done: int, detail: str) -> None:
        """Reports a grown forest of a member."""
        number, total = len(self.seconds) + 1, len(self.names)
        text = f"{self.unit} {number} of {total}, forest {done}"
        report_step(text, number - 1, total, f"{name}, {detail}")


def _fits(trainings: MemberTrainings) -> Iterator[tuple[str, Problem, Callable[[], Member]]]:
    """Yields the name, the problem and the training of each member except for the network."""
    inputs, examples, folds = trainings.inputs, trainings.examples, trainings.folds
    problem, settings = inputs.data.problem, inputs.settings

    alike, plain = without_class_weights(inputs.data, examples)
    seed, report = settings.train.global_seed, trainings.report_forest
    boosted = functools.partial(report, "boosted")

    def averaged(kind: str, options: ForestSettings) -> Callable[[], Member]:
        def fit() -> Member:
            given = (alike, plain, folds, AVERAGED_TREES, seed, options)
            grown = grow_averaged(kind, *given, functools.partial(report, kind))
            move_thresholds(grown.forest, examples.values)
            return forest_member(plain, grown, kind)

        return fit

    fits: dict[str, tuple[Problem, Callable[[], Member]]] = {
        "boosted": (problem, lambda: grow_boosted(examples, problem, settings, folds, boosted)),
        "random": (plain, averaged("random", settings.model.random)),
        "extra": (plain, averaged("extra", settings.model.extra)),
        LINEAR_MEMBER: (problem, lambda: fit_linear(examples, problem, folds, seed)),
    }
    yield from ((name, *fits[name]) for name in trainings.names if name != NETWORK_MEMBER)


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
    part_of, count = renumber(remaining.part_of, parts, content.examples / wanted)
    return Folds(Parts(part_of), count_members(max(1, count), content.examples))


def _fit_network(trainings: MemberTrainings) -> Member:
    inputs, folds, data = trainings.inputs, trainings.folds, trainings.inputs.data
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

        trainings.network = trained = train_on_part(
            train_network, inputs, parts, predict, trains_once=trainings.is_trial
        )
    notes = (_MAY_HAVE_SEEN,) if inputs.base_model and len(held_out) else ()
    return Member(lambda given: trained.model(given), unseen, notes)


_MAY_HAVE_SEEN = (
    "the weight of the network does not depend on held-out examples, as its base model may have "
    "learnt from them"
)


def _predict(model: tf_keras.Model, split: Split, data: TrainingData) -> np.ndarray:
    """Returns the network's outputs for a split in memory, [examples, units].

    Raises:
      DivergedError: an output is NaN, which would count as that of an example that has been seen.
    """
    tensors = split.content.tensors
    assert tensors is not None  # noqa: S101 - a part of a split in memory
    # Unlike `predict`, calls of the model trace no graph.
    parts = [
        model({n: tensors[n][at : at + EVAL_BATCH] for n in model.input_names}, training=False)
        for at in range(0, split.examples, EVAL_BATCH)
    ]
    found = np.concatenate([part.numpy() for part in parts])
    if np.isnan(found).any():
        raise DivergedError("some of its predictions of unseen examples are not numbers")
    return np.asarray(found, np.float64).reshape(split.examples, data.problem.output_units)


def _join(trainings: MemberTrainings) -> TrainingResult:
    """Returns the weighted mean of the members as the result of the training."""
    trainings.check()
    unseen, labels, factors = trainings.unseen, trainings.labels, trainings.bias_factors
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
    boosted = trainings.members.get("boosted")
    grown = boosted.measure() if boosted else {}
    trained = trainings.network or _without_network(inputs, trainings, grown)
    return replace(
        trained,
        model=model,
        measured={},
        notes=[*trained.notes, *_notes(trainings, weights)],
        extras={
            **trained.extras,
            **_extras(trainings, unseen, weights, blended, divisor),
            **({"importances": grown["importances"]} if grown else {}),
        },
    )


def _without_network(
    inputs: TrainingInputs, trainings: MemberTrainings, grown: Mapping[str, Any]
) -> TrainingResult:
    """Returns the result of a training in which no network was trained; its model is replaced."""
    split = inputs.data.train
    return TrainingResult(
        model=tf_keras.Model(),
        train=replace(split, batch_size=split.examples, rounds=1),
        evaluation=inputs.data.evaluation,
        history=grown.get("history", {"loss": []}),
        best_epoch=grown.get("trees", 0),
        epoch_seconds=[sum(trainings.seconds.values())],
    )


def _notes(trainings: MemberTrainings, weights: Mapping[str, float]) -> Iterator[str]:
    """Yields notes on the members and their weights."""
    shown = ", ".join(f"{name} {weight:.0%}" for name, weight in _ranked(weights))
    yield f"ensemble: {shown}"
    if absent := [name for name in trainings.members if name not in weights]:
        yield f"ensemble: without {', '.join(absent)}, which would not improve the mean"
    named, names = trainings.inputs.settings.model.members, trainings.names
    if not isinstance(named, int) and (unable := [name for name in named if name not in names]):
        yield f"ensemble: without {', '.join(unable)}, as trees read no texts"
    for name in weights:
        yield from (f"ensemble: {note}" for note in trainings.members[name].notes)
    for name, error in trainings.failures.items():
        yield f"ensemble: member {name} failed and was left out: {shorten(error)}"


def _ranked(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(weights.items(), key=lambda pair: -pair[1])


def _extras(
    trainings: MemberTrainings,
    unseen: Mapping[str, np.ndarray],
    weights: Mapping[str, float],
    blended: np.ndarray,
    divisor: float,
) -> dict[str, Any]:
    """Returns the entries of the record: the members and the calibration."""
    labels = trainings.labels
    # The network holds fewer rows out than the others; losses of different rows do not compare.
    shared = common_rows(unseen)
    rows = shared if len(shared) else np.arange(len(labels.values))

    def loss(predicted: np.ndarray) -> float | None:
        return unseen_loss(predicted[rows], labels.only(rows))

    members = {
        name: {
            "weight": weights.get(name, 0.0),
            "unseen_loss": loss(unseen[name]),
            "seconds": round(trainings.seconds[name], 3),
        }
        for name in trainings.members
    }
    found: dict[str, Any] = {"members": members, "unseen_loss": loss(blended)}
    if labels.problem.task.is_classification:
        calibrated = divide_logits(labels.problem, blended, divisor) if divisor != 1 else blended
        found["temperature"] = divisor
        found["calibration_error"] = calibration_error(calibrated, labels)
    return found
