"""Further trainings on parts of the train split: to choose a length by, and to cross-validate."""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import tf_keras

from trainer_module.data.dealing import (
    ENOUGH,
    Parts,
    divide_records,
    first_examples,
    hold_out,
    make_fold,
)
from trainer_module.data.loading import TrainingData
from trainer_module.families.supervised.losses import make_loss
from trainer_module.settings.train import choose_stopping, is_chosen
from trainer_module.training.plan import Trained, TrainingInputs, TrainingPlan

CHOICE_FOLDER = "choice"
"""In the folders of a training: that of the one by which its length is chosen."""
FOLDS_FOLDER = "folds"
"""In the folders of a training: that which has one for each fold."""

_NOTHING_HELD_OUT = (
    "early stopping could not choose an epoch, as no examples of the train split can be held out: "
    "all are of one group (data.split_by) or time (data.order_by), or alone of their class; "
    "the last of {} epochs is exported"
)

Train: TypeAlias = Callable[[TrainingInputs], Trained]
TrainByPlan: TypeAlias = Callable[[TrainingInputs, TrainingPlan], Trained]


def train_for_the_best_length(train: TrainByPlan, inputs: TrainingInputs) -> Trained:
    """Trains a network; what is chosen, such as the epoch, is chosen by a part of the train split.

    The eval split judges the model, so nothing is chosen by it. A small train split is learnt from
    whole once it is known for how many epochs.

    Args:
      train: trains by a plan.
      inputs: of the training.

    Raises:
      TrainingError: if the model cannot be built, or training diverges.
    """
    settings, data = inputs.settings, inputs.data
    chosen = is_chosen(settings.train, data.train.steps)
    held_out = hold_out(data.train, data.evaluation) if chosen else None
    if held_out is None:
        plan = TrainingPlan.of(settings, data, chooses=False)
        if choose_stopping(settings.train, data.train.steps):
            plan = replace(plan, notes=(*plan.notes, _NOTHING_HELD_OUT.format(plan.epochs)))
        return train(inputs, plan)
    part = replace(data, train=held_out[0], evaluation=held_out[1])
    # Callbacks of the user's may choose by what they see, and checkpoints are gone on from.
    goes_once = settings.train.callbacks or settings.train.checkpoints
    if data.train.examples > ENOUGH or goes_once:
        return train(replace(inputs, data=part), TrainingPlan.of(settings, part))
    first = inputs.within(CHOICE_FOLDER, data=part, prefix=f"{inputs.prefix}first on a part, ")
    epochs = train(first, TrainingPlan.of(settings, part)).best_epoch
    # The model's layers have the names that a new process would give them.
    tf_keras.backend.clear_session()
    gc.collect()
    tf_keras.utils.set_random_seed(settings.train.global_seed)
    plan = TrainingPlan.of(settings, data)
    return train(inputs, plan.with_length(epochs, part.evaluation.examples, data.train.examples))


def evaluated_in_part(inputs: TrainingInputs) -> TrainingData:
    """Returns the data of a training, of which each epoch looks at what `train.validation_steps`
    says.

    As many examples as so many global batches have: the same ones on any number of replicas.
    """
    data, steps = inputs.data, inputs.settings.train.validation_steps
    if steps is None:
        return data
    count = steps * data.train.global_batch_size
    return replace(data, evaluation=first_examples(data.evaluation, count))


def cross_validate(count: int, train: Train, inputs: TrainingInputs) -> dict[str, Any]:
    """Trains a model per fold as the model itself was trained, and measures it on the fold.

    Each begins from scratch: a base model may have seen the examples that are held out. Transform's
    analyzers, and the scale of a regression's label, are those of the whole train split.

    Args:
      count: how many folds there are.
      train: trains a model.
      inputs: of the training.

    Returns:
      By metric its value on each fold, their mean and their standard deviation.

    Raises:
      TrainingError: there are fewer examples than folds, or training diverges.
    """
    data = inputs.data

    def train_fold(fold: int, folds: Parts) -> dict[str, float]:
        """What is made for a fold is let go of with the end of the call: it may fill the memory."""
        learnt, held_out = make_fold(data.train, data.evaluation, folds, fold)
        part = replace(data, train=learnt, evaluation=held_out)
        tf_keras.utils.set_random_seed(inputs.settings.train.global_seed)
        prefix = f"fold {fold + 1} of {count}, "
        folder = os.path.join(FOLDS_FOLDER, str(fold + 1))
        trained = train(inputs.within(folder, data=part, base_model=None, prefix=prefix))
        if trained.measured and trained.evaluation is held_out:
            return dict(trained.measured)
        return measure(trained.model, part)

    folds = divide_records(data.train, count, f"evaluate.folds: {count} folds")
    measured = []
    for fold in range(count):
        measured.append(train_fold(fold, folds))
        gc.collect()  # Keras's models refer to themselves.
    return _summarize(measured)


def measure(model: tf_keras.Model, data: TrainingData) -> dict[str, float]:
    """What a trained model comes to on the examples that it is evaluated on, by metric."""
    strategy = model.distribute_strategy
    if model.optimizer is None:  # It was trained as a part of another one, or in no steps.
        with strategy.scope():
            metrics = data.problem.make_metrics()
            model.compile(loss=make_loss(data.problem, None), metrics=metrics)
    batches = data.evaluation.distribute(strategy)
    found = model.evaluate(batches, steps=data.evaluation.steps, verbose=0, return_dict=True)
    return {name: float(value) for name, value in found.items()}


def _summarize(measured: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """By metric its value on each fold, their mean and their standard deviation."""
    return {
        name: {
            "values": (values := [metrics[name] for metrics in measured]),
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values),
        }
        for name in measured[0]
    }
