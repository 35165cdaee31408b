"""Trainings on parts of the train split: early stopping on a held-out part, cross-validation."""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import tf_keras

from trainer_module.data.dealing import (
    LARGE_SPLIT,
    Parts,
    divide_records,
    first_examples,
    hold_out,
    make_fold,
)
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData
from trainer_module.families.supervised.losses import make_loss
from trainer_module.families.supervised.tasks.layers import correct_bias
from trainer_module.settings.train import choose_stopping, needs_held_out
from trainer_module.training.building import BIAS_FACTOR
from trainer_module.training.plan import TrainingInputs, TrainingPlan, TrainingResult
from trainer_module.training.reuse import Reuse

CHOICE_FOLDER = "choice"
"""The subfolder of the training that chooses the number of epochs."""
FOLDS_FOLDER = "folds"
"""The subfolder with a folder for each fold."""

_NOTHING_HELD_OUT = (
    "early stopping could not choose an epoch, as no examples of the train split can be held out: "
    "all have the same group (data.split_by) or time (data.order_by), or each class has a single "
    "example; the last of {} epochs is exported"
)

Train: TypeAlias = Callable[[TrainingInputs], TrainingResult]
TrainByPlan: TypeAlias = Callable[[TrainingInputs, TrainingPlan], TrainingResult]


def train_best_length(train: TrainByPlan, inputs: TrainingInputs) -> TrainingResult:
    """Trains a network, with the best epoch chosen on a held-out part of the train split.

    The eval split only evaluates the model. With a small train split, the model is trained again on
    the whole split once the number of epochs is known.

    Args:
      train: the function that trains by a plan.
      inputs: the inputs of the training.

    Raises:
      TrainingError: the model cannot be built, or training diverges.
    """
    settings, data = inputs.settings, inputs.data
    chosen = needs_held_out(settings.train, data.train.steps)
    held_out = hold_out(data.train, data.evaluation) if chosen else None
    if held_out is None:
        plan = TrainingPlan.of(settings, data, chooses_epoch=False)
        if choose_stopping(settings.train, data.train.steps):
            plan = replace(plan, notes=(*plan.notes, _NOTHING_HELD_OUT.format(plan.epochs)))
        trained = train(inputs, plan)
        return _corrected(trained, _factor(trained, BIAS_FACTOR))
    return train_on_part(train, inputs, held_out)


def train_on_part(
    train: TrainByPlan,
    inputs: TrainingInputs,
    held_out: tuple[Split, Split],
    on_model: Callable[[tf_keras.Model], None] = lambda _: None,
    trains_once: bool = False,
) -> TrainingResult:
    """Trains a network on a part of the train split, and a small table's again on the whole split.

    Args:
      train: the function that trains by a plan.
      inputs: the inputs of the training.
      held_out: the examples to train on, and the held-out ones.
      on_model: a function that is called with the model that has not seen the held-out examples.
      trains_once: whether there is no second training, whatever the size of the table.

    Raises:
      TrainingError: the model cannot be built, or training diverges.
    """
    settings, data = inputs.settings, inputs.data
    chosen = needs_held_out(settings.train, data.train.steps)
    part = replace(data, train=held_out[0], evaluation=held_out[1])
    # A user's callbacks may depend on the epochs that they see, and kept checkpoints may be resumed
    # from, so there is only one training.
    trains_once = trains_once or bool(settings.train.callbacks or settings.train.checkpoints)
    if data.train.examples > LARGE_SPLIT or trains_once:
        trained = train(replace(inputs, data=part), TrainingPlan.of(settings, part, chosen))
        trained = _corrected(trained, _factor(trained, f"val_{BIAS_FACTOR}"))
        on_model(trained.model)
        return trained
    reuse = Reuse(settings)
    first = inputs.within(
        CHOICE_FOLDER, data=part, reuse=reuse, prefix=f"{inputs.prefix}first with a held-out part, "
    )
    trained = train(first, TrainingPlan.of(settings, part, chosen))
    factor = _factor(trained, f"val_{BIAS_FACTOR}")
    trained = _corrected(trained, factor)
    on_model(trained.model)
    epochs = trained.best_epoch
    del trained
    plan = TrainingPlan.of(settings, data, chosen)
    # The callbacks have seen the epochs of the first training.
    inputs = replace(inputs, extra_callbacks=(), reuse=reuse)
    if not reuse.fits(plan.examples_per_step, plan.steps_per_execution):
        # Resets layer names, so that the second model has the names of a new process.
        tf_keras.backend.clear_session()
        gc.collect()
        tf_keras.utils.set_random_seed(settings.train.global_seed)
    if chosen:
        plan = plan.with_length(epochs, part.evaluation.examples, data.train.examples)
    return _corrected(train(inputs, plan), factor)


def _factor(trained: TrainingResult, name: str) -> float | None:
    """Returns the `BiasFactor` of the best epoch; None if the bias is not corrected."""
    values = trained.history.get(name)
    return values[trained.best_epoch - 1] if values else None


def _corrected(trained: TrainingResult, factor: float | None) -> TrainingResult:
    """Returns the result with a model without the bias of exponentials of predicted logarithms."""
    if factor is None:
        return trained
    with trained.model.distribute_strategy.scope():
        correct_bias(trained.model, factor)
    history = {k: v for k, v in trained.history.items() if not k.endswith(BIAS_FACTOR)}
    return replace(trained, history=history, measured={})


def limit_evaluation(inputs: TrainingInputs) -> TrainingData:
    """Returns the data of a training, with the evaluation limited by `train.validation_steps`.

    The evaluation uses as many examples as that number of global batches has. The examples do not
    depend on the number of replicas.
    """
    data, steps = inputs.data, inputs.settings.train.validation_steps
    if steps is None:
        return data
    count = steps * data.train.global_batch_size
    return replace(data, evaluation=first_examples(data.evaluation, count))


def cross_validate(count: int, train: Train, inputs: TrainingInputs) -> dict[str, Any]:
    """Trains a model per fold like the model itself, and evaluates it on the fold.

    Each training starts from scratch, as a base model may have seen the held-out examples.
    Transform's analyzers, and the scale of a regression's label, are those of the whole train
    split.

    Args:
      count: the number of folds.
      train: the function that trains a model.
      inputs: the inputs of the training.

    Returns:
      For each metric its value on each fold, their mean and their standard deviation.

    Raises:
      TrainingError: there are fewer examples than folds, or training diverges.
    """
    data = inputs.data

    def train_fold(fold: int, folds: Parts) -> dict[str, float]:
        """Trains and evaluates one fold in a scope of its own, so that its memory is freed."""
        train_split, held_out = make_fold(data.train, data.evaluation, folds, fold)
        part = replace(data, train=train_split, evaluation=held_out)
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
        gc.collect()  # Keras's models are in reference cycles.
    return _summarize(measured)


def measure(model: tf_keras.Model, data: TrainingData) -> dict[str, float]:
    """Returns the metrics of a trained model on the evaluation examples."""
    strategy = model.distribute_strategy
    if model.optimizer is None:  # The model was trained as a part of another, or is a forest.
        with strategy.scope():
            metrics = data.problem.make_metrics()
            model.compile(loss=make_loss(data.problem, None), metrics=metrics)
    batches = data.evaluation.distribute(strategy)
    found = model.evaluate(batches, steps=data.evaluation.steps, verbose=0, return_dict=True)
    return {name: float(value) for name, value in found.items() if name != BIAS_FACTOR}


def _summarize(measured: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Returns, for each metric, its value on each fold, their mean and their standard deviation."""
    return {
        name: {
            "values": (values := [metrics[name] for metrics in measured]),
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values),
        }
        for name in measured[0]
    }
