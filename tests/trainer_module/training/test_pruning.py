"""Pruning: how much, when and in which pattern, under each strategy, after a kill, as exported."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
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
from trainer_module.settings import Loop, ModelSettings
from trainer_module.settings.optimize import PruneSettings
from trainer_module.trainer import run_fn
from trainer_module.training.compression import (
    PruningSteps,
    plan_pruning,
    plan_steps,
    pruning_of,
    strip_pruning,
    with_pruning,
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
        ({"sparsity": 0.5, "schedule": "constant"}, PruningSteps(0, 50, 50)),
        ({"structure": "2by4", "begin": 0.5}, PruningSteps(500, 500, 25)),
        ({"begin": 200, "end": 700}, PruningSteps(200, 700, 25)),
        ({"end": 5000}, PruningSteps(0, 1000, 50)),
        ({"schedule": "constant", "begin": 400}, PruningSteps(400, 400, 30)),
    ],
)
def test_steps_follow_from_shares_and_numbers(
    prune: dict[str, Any], expected: PruningSteps
) -> None:
    found = plan_steps(PruneSettings.model_validate(prune), 1000)
    assert found == expected
    assert (found.end - found.begin) % found.every == 0, "so the last look is at the end"


@pytest.mark.parametrize("steps", [1, 2, 3, 15, 99])
@pytest.mark.parametrize("prune", [{}, {"begin": 0.9, "end": 1.0}, {"schedule": "constant"}])
def test_short_trainings_prune_too(prune: dict[str, Any], steps: int) -> None:
    found = plan_steps(PruneSettings.model_validate(prune), steps)
    assert 0 <= found.begin <= found.end <= steps
    assert found.end >= 1
    assert found.every >= 1


@pytest.mark.parametrize(
    ("strategy", "loop"),
    [
        ("default", Loop.CUSTOM),
        ("central_storage", Loop.FIT),
    ],
)
def test_sparsity_is_reached_and_kept_under_each_strategy(
    trips: Transformed, tmp_path: Path, strategy: str, loop: Loop
) -> None:
    batch_size = 32 if strategy == "default" else 16
    options = {"strategy": strategy, "batch_size": batch_size, "loop": loop}
    job = train_whole(prepare(trips, tmp_path, {"sparsity": 0.75}, **options))
    for values in kernels(job.model):
        assert zeros(values) == pytest.approx(0.75, abs=0.6 / values.size)
    assert job.best_epoch >= 2, "the first epoch ends before the sparsity is reached"
    assert job.measured["accuracy"] > 0.75
    assert all(zeros(w.numpy()) < 1 for w in job.model.trainable_weights), "biases stay whole"


EMA = {"optimizer": {"kind": "adamw", "ema": 0.8, "weight_decay": 0.1, "clip_norm": 1.0}}


def test_averages_and_half_precision_leave_zeros(trips: Transformed, tmp_path: Path) -> None:
    options = {**EMA, "precision": "mixed_bfloat16", "epochs": 2}
    try:
        prune = {"sparsity": 0.5, "schedule": "constant"}
        job = train_whole(prepare(trips, tmp_path, prune, **options))
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    for values in kernels(job.model):
        assert zeros(values) == pytest.approx(0.5, abs=0.6 / values.size)


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


def build_wide(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """Weights of one, two, three and four dimensions, some of them in a model in the model."""
    image = problem.make_inputs()["image"]
    hidden = tf_keras.layers.Conv2D(8, 3, activation="relu")(image)
    hidden = tf_keras.layers.BatchNormalization()(hidden)
    hidden = tf_keras.layers.Reshape((-1, 8))(hidden)
    inner = tf_keras.Sequential([tf_keras.layers.Dense(8, input_shape=(None, 8))], name="inner")
    hidden = tf_keras.layers.Conv1D(8, 3)(inner(hidden))
    hidden = tf_keras.layers.MultiHeadAttention(2, 4)(hidden, hidden)
    hidden = tf_keras.layers.GRU(8)(hidden)
    return tf_keras.Model({"image": image}, problem.make_output_layer()(hidden))


def using(data: Transformed, builder: Any) -> Transformed:
    model = ModelSettings(kind=f"{__name__}.{builder.__name__}")
    return replace(data, settings=data.settings.model_copy(update={"model": model}))


def test_weights_are_found_wherever_they_sit(shades: Transformed, tmp_path: Path) -> None:
    data = using(shades, build_wide)
    job = train_whole(prepare(data, tmp_path, {"schedule": "constant"}, epochs=1))
    assert layers(job) == [
        "conv2d",
        "dense",
        "conv1d",
        "multi_head_attention/query",
        "multi_head_attention/key",
        "multi_head_attention/value",
        "multi_head_attention/attention_output",
        "gru/gru_cell",
        "gru/gru_cell",
        "output",
    ]
    for layer, share in job.extras["sparsity"]["layers"].items():
        assert share == pytest.approx(0.5, abs=0.03), layer


@pytest.mark.parametrize("structure", ["2by4", {"block": [1, 4]}])
def test_structures(shades: Transformed, tmp_path: Path, structure: Any) -> None:
    prune = {"schedule": "constant", "structure": structure}
    job = train_whole(prepare(shades, tmp_path, prune, epochs=1))
    found = dict(zip(layers(job), pruned(job), strict=True))
    if structure == "2by4":
        assert list(found) == ["conv2d", "dense", "output"]
        assert not job.notes
        for name, weight in found.items():
            assert is_pruned_m_by_n(tf.constant(weight), (2, 4), "C_OUT"), name
        assert zeros(found["dense"]) == 0.5
    else:
        assert list(found) == ["dense"]
        blocks = found["dense"].reshape(-1, 4)
        assert set((blocks == 0).sum(axis=1)) == {0, 4}
        (note,) = job.notes
        assert note.startswith("optimize.prune: blocks support weights of two dimensions with ")
        assert note.endswith("/kernel and output/kernel are not pruned")


def test_kernels_that_are_too_small_and_steps_that_are_too_many_are_said() -> None:
    layers = [tf_keras.layers.Dense(units, name=f"of_{units}") for units in (1000, 9, 1)]
    model = tf_keras.Sequential([tf_keras.Input([40]), *layers])
    prune = PruneSettings(sparsity=0.5, begin=3, end=400)
    plan = plan_pruning(model, prune, steps=100)
    assert [weight.layer for weight in plan.weights] == ["of_1000", "of_9"]
    assert plan.steps.end == 100
    small, late = plan.notes
    assert small == (
        "optimize.prune: of_1/kernel (9) is not pruned: kernels with fewer than 1,000 numbers and "
        "less than 1% of the network keep all numbers"
    )
    assert late.startswith(
        "optimize.prune.end: found 400 steps, but training has only 100 steps, so pruning"
    )


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


@pytest.mark.parametrize(
    ("builder", "prune", "message"),
    [
        (
            build_unknown,
            {},
            r"optimize.prune: layer 'scale' is a \S*test_pruning.Scale, whose prunable weights "
            r"are unknown; add a method get_prunable_weights\(self\)",
        ),
        (
            build_compiled,
            {},
            "its builder has compiled the model with an optimizer without pruning",
        ),
    ],
)
def test_what_cannot_be_pruned_is_named(
    trips: Transformed, tmp_path: Path, builder: Any, prune: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        begin(prepare(using(trips, builder), tmp_path, prune))


def build_convolution(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """No matrix that a block of two rows and columns fits."""
    image = problem.make_inputs()["image"]
    hidden = tf_keras.layers.Conv2D(3, 3)(image)
    hidden = tf_keras.layers.GlobalAveragePooling2D()(hidden)
    return tf_keras.Model({"image": image}, tf_keras.layers.Softmax()(hidden))


def test_a_structure_that_fits_nothing(shades: Transformed, tmp_path: Path) -> None:
    message = (
        r"optimize.prune.structure: blocks support weights of two dimensions with several blocks "
        r"in each dimension: conv2d\S*/kernel is not pruned, and the model has no other weights"
    )
    inputs = prepare(using(shades, build_convolution), tmp_path, {"structure": {"block": [2, 2]}})
    with pytest.raises(TrainingError, match=message):
        begin(inputs)


class StopAtOnce(tf_keras.callbacks.Callback):
    """Ends training before anything has been pruned."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = True


def test_training_that_is_ended_before_its_sparsity_has_its_last_epoch(
    trips: Transformed, tmp_path: Path
) -> None:
    inputs = prepare(trips, tmp_path, {"sparsity": 0.75, "begin": 0.5, "end": 1.0})
    job = train_whole(inputs, [StopAtOnce()])
    assert job.best_epoch == 1
    assert job.measured["loss"] == job.history["val_loss"][0]
    assert job.plan.first_pruned_epoch > 1, "no epoch could be the best"


def test_early_stopping_waits_for_the_sparsity(trips: Transformed, tmp_path: Path) -> None:
    """The learning rate grows: the loss is lowest early on, and patience would end training."""
    worse = {"schedule": "steps", "values": [0.01, 3.0], "boundaries": [2]}
    options = {"learning_rate": worse, "early_stopping": {"patience": 1}, "epochs": 8}
    job = train_whole(prepare(trips, tmp_path, {"sparsity": 0.75, "end": 0.7}, **options))
    first = job.pruning.steps.first_pruned_epoch(job.train.steps)
    assert first == 5
    assert len(job.history["loss"]) > first
    assert job.best_epoch > first


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
    later = trips.fn_args(tmp_path / "later", optimize={"prune": {"sparsity": 0.5}})
    later.base_model = path
    run_fn(later)
    record = read_record(later.serving_model_dir)
    assert record["sparsity"]["overall"] == 0.5
    assert record["history"]["loss"][0] < 0.5


def test_loss_scaling_does_not_hide_what_is_pruned() -> None:
    plan: Any = SimpleNamespace(weights=[])
    optimizer = with_pruning(tf_keras.optimizers.Adam)(0.1)
    optimizer.prune(plan)
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
    model.compile(tf_keras.mixed_precision.LossScaleOptimizer(optimizer), "mse")
    assert pruning_of(model) is plan
    model.optimizer.build(model.trainable_variables)
    strip_pruning(model)
    assert pruning_of(model) is None
