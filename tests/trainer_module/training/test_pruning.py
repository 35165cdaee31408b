"""Pruning: how much, when and in which pattern, under each strategy, after a kill, as exported."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow_model_optimization.python.core.sparsity.keras.pruning_utils import is_pruned_m_by_n

from tests.support.trainer_data import Transformed, read_record
from tests.support.trainings import begin, open_training, train_whole
from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.runtime import WorkerContext
from trainer_module.settings import ModelSettings
from trainer_module.settings.optimize import PruneSettings
from trainer_module.trainer import run_fn
from trainer_module.training.compression import (
    PruningSteps,
    plan_pruning,
    plan_steps,
)
from trainer_module.training.plan import TrainingInputs, TrainingResult


def prepare(data: Transformed, directory: Path, prune: Any, **train: Any) -> TrainingInputs:
    """What a training is given; `directory` keeps the backup."""
    fn_args = data.fn_args(directory / "run", train=train, optimize={"prune": prune})
    runtime = WorkerContext(backup_directory=str(directory / "backup"), backup_steps=4)
    return open_training(fn_args, runtime)


def kernels(model: tf_keras.Model) -> list[np.ndarray]:
    return [w.numpy() for w in model.trainable_weights if "kernel" in w.name]


def pruned(job: TrainingResult) -> list[np.ndarray]:
    return [weight.variable.numpy() for weight in job.pruning.weights]


def layers(job: TrainingResult) -> list[str]:
    """The pruned ones, by what Keras calls them in a process of their own."""
    return [re.sub(r"_\d+(?=/|$)", "", weight.layer) for weight in job.pruning.weights]


def zeros(values: np.ndarray) -> float:
    return float((values == 0).mean())


@pytest.mark.parametrize(
    ("prune", "expected"),
    [
        ({"sparsity": 0.8}, PruningSteps(begin=0, end=500, every=25)),
        ({"sparsity": 0.8, "begin": 0.2, "end": 1.0}, PruningSteps(200, 1000, 40)),
        ({"structure": "2by4", "begin": 0.5}, PruningSteps(500, 500, 25)),
        ({"begin": 200, "end": 700}, PruningSteps(200, 700, 25)),
    ],
)
def test_steps_follow_from_shares_and_numbers(
    prune: dict[str, Any], expected: PruningSteps
) -> None:
    found = plan_steps(PruneSettings.model_validate(prune), 1000)
    assert found == expected
    assert (found.end - found.begin) % found.every == 0, "so the last look is at the end"


def test_short_trainings_prune_too() -> None:
    for prune in ({}, {"begin": 0.9, "end": 1.0}, {"schedule": "constant"}):
        for steps in (1, 2, 15):
            found = plan_steps(PruneSettings.model_validate(prune), steps)
            assert 0 <= found.begin <= found.end <= steps
            assert found.end >= 1
            assert found.every >= 1


@pytest.mark.slow
def test_sparsity_is_reached_and_kept_on_replicas(trips: Transformed, tmp_path: Path) -> None:
    options = {"strategy": "central_storage", "batch_size": 16}
    job = train_whole(prepare(trips, tmp_path, {"sparsity": 0.75}, **options))
    for values in kernels(job.model):
        assert zeros(values) == pytest.approx(0.75, abs=0.6 / values.size)
    assert job.best_epoch >= 2, "the first epoch ends before the sparsity is reached"
    assert job.measured["accuracy"] > 0.75
    assert all(zeros(w.numpy()) < 1 for w in job.model.trainable_weights), "biases stay whole"


class Interrupt(tf_keras.callbacks.Callback):
    """Ends training as a kill would, in the middle of the second epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.epoch == 1 and batch + 1 >= 8:
            raise KeyboardInterrupt

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch


class Masks(tf_keras.callbacks.Callback):
    """Takes down the masks that training goes on with."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.masks = [mask.numpy() for mask in self.model.optimizer._masks]


@pytest.mark.slow
def test_masks_survive_a_kill(trips: Transformed, tmp_path: Path) -> None:
    """Weights that were zero stay zero, and training ends as if nothing had happened."""
    prune = {"sparsity": 0.75, "end": 0.3}
    options = {"strategy": "mirrored", "batch_size": 16}
    whole = train_whole(prepare(trips, tmp_path / "whole", prune, **options))
    inputs = prepare(trips, tmp_path, prune, **options)
    with pytest.raises(KeyboardInterrupt):
        train_whole(inputs, [Interrupt()])
    begun = Masks()
    job = train_whole(inputs, [begun])
    assert (job.start.epoch, job.start.step) == (1, 4)
    masks = begun.masks
    assert [round(zeros(mask), 1) for mask in masks] == [0.8] * len(masks)
    for mask, values, expected in zip(masks, pruned(job), pruned(whole), strict=True):
        assert not values[mask == 0].any(), "what was pruned before the kill"
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)


def using(data: Transformed, builder: Any) -> Transformed:
    model = ModelSettings(kind=f"{__name__}.{builder.__name__}")
    return replace(data, settings=data.settings.model_copy(update={"model": model}))


@pytest.mark.slow
def test_two_of_four_weights_are_pruned(shades: Transformed, tmp_path: Path) -> None:
    prune = {"schedule": "constant", "structure": "2by4"}
    job = train_whole(prepare(shades, tmp_path, prune, epochs=1))
    found = dict(zip(layers(job), pruned(job), strict=True))
    assert list(found) == ["conv2d", "dense", "output"]
    for name, weight in found.items():
        assert is_pruned_m_by_n(tf.constant(weight), (2, 4), "C_OUT"), name
    assert zeros(found["dense"]) == 0.5


def test_small_kernels_and_late_steps_are_noted() -> None:
    layers = [tf_keras.layers.Dense(units, name=f"of_{units}") for units in (1000, 9, 1)]
    model = tf_keras.Sequential([tf_keras.Input([40]), *layers])
    prune = PruneSettings(sparsity=0.5, begin=3, end=400)
    plan = plan_pruning(model, prune, steps=100)
    assert [weight.layer for weight in plan.weights] == ["of_1000", "of_9"]
    assert plan.steps.end == 100
    small, late = plan.notes
    assert small.startswith("optimize.prune: of_1/kernel (9)")
    assert late.startswith("optimize.prune.end: found 400 steps")


class Scale(tf_keras.layers.Layer):
    """A layer that nobody knows, with a matrix of weights."""

    def build(self, input_shape: Any) -> None:
        self.matrix = self.add_weight("matrix", (input_shape[-1], 2))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs @ self.matrix


def build_unknown(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """With a layer of the user's."""
    inputs = problem.make_inputs()
    return tf_keras.Model(inputs, problem.make_output_layer()(Scale()(inputs["fare"])))


def build_compiled(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """A model that its builder compiles."""
    inputs = problem.make_inputs()
    model = tf_keras.Model(inputs, problem.make_output_layer()(inputs["fare"]))
    model.compile("sgd", "binary_crossentropy")
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (build_unknown, r"optimize\.prune: layer 'scale' .*get_prunable_weights"),
        (build_compiled, "optimizer without pruning"),
    ],
)
def test_models_that_cannot_be_pruned_are_refused(
    trips: Transformed, tmp_path: Path, builder: Any, message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        begin(prepare(using(trips, builder), tmp_path, {}))


@pytest.mark.slow
def test_an_exported_model_is_sparse_and_has_no_masks(trips: Transformed, tmp_path: Path) -> None:
    fn_args = trips.fn_args(tmp_path, optimize={"prune": {"sparsity": 0.75}})
    run_fn(fn_args)
    path = fn_args.serving_model_dir
    record = read_record(path)
    assert record["sparsity"]["overall"] == 0.75
    assert record["sparsity"]["layers"].keys() >= {"output", "company_embedding"}
    assert set(record["sparsity"]["layers"].values()) == {0.75}
    names = [name for name, _ in tf.train.list_variables(f"{path}/variables/variables")]
    assert not [name for name in names if "mask" in name]
    model = tf_keras.models.load_model(path)
    assert {type(layer).__name__ for layer in model.layers} >= {"Dense"}
    assert not [layer.name for layer in model.layers if "prune" in layer.name]
    for values in kernels(model):
        assert zeros(values) == pytest.approx(0.75, abs=0.6 / values.size)
