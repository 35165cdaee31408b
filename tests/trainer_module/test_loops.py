"""Both loops under each strategy: the same losses, also after an interruption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import Transformed, read_record
from tests.support.trainings import begin, open_training, train_whole
from tests.support.warm_data import using
from trainer_module.checkpoint_evaluation import evaluate_checkpoint
from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.runtime import WorkerContext
from trainer_module.settings import Loop, ModelSettings
from trainer_module.trainer import run_fn
from trainer_module.training.checkpoint import (
    Position,
    without_optimizer,
)
from trainer_module.training.plan import TrainingInputs

pytestmark = pytest.mark.slow

TWO_REPLICAS = ("mirrored", "central_storage")


def prepare(
    data: Transformed, directory: Path, runtime: WorkerContext | None = None, **train: Any
) -> TrainingInputs:
    """What a training is given, with the seed set; `directory` keeps the backup."""
    fn_args = data.fn_args(directory / "run", train=train)
    return open_training(
        fn_args, runtime or WorkerContext(backup_directory=str(directory / "backup"))
    )


def train(data: Transformed, directory: Path, loop: Loop = Loop.FIT, **settings: Any) -> dict:
    """The history of a whole training."""
    return train_whole(prepare(data, directory, loop=loop, **settings)).history


@pytest.fixture(scope="module")
def expected(trips: Transformed, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What TensorFlow's default strategy and `fit` come to."""
    return train(trips, tmp_path_factory.mktemp("expected"))


def build_regularized(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """A model of few variables, whose weights count in the loss."""
    inputs = problem.make_inputs()
    joined = tf_keras.layers.Concatenate()([inputs["fare"], inputs["miles"]])
    regularizer = tf_keras.regularizers.L2(0.1)
    hidden = tf_keras.layers.Dense(8, "relu", kernel_regularizer=regularizer)(joined)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden))


def halved(epoch: int) -> float:
    """As the tutorial's `decay`, which a callback sets."""
    return 0.01 * 0.5**epoch


def grown(epoch: int) -> float:
    return 0.01 if epoch < 2 else 3.0


SCHEDULE = {
    "learning_rate": f"{__name__}.halved",
    "optimizer": {"kind": "adamw", "clip_norm": 0.3, "ema": 0.8},
    "loss": {"kind": "focal", "label_smoothing": 0.1},
    "class_weights": "balanced",
    "batch_size": {"global": 32},
    "steps_per_epoch": 7,
    "validation_steps": 2,
}


@pytest.fixture(scope="module")
def regularized(trips: Transformed) -> Transformed:
    model = ModelSettings(kind=f"{__name__}.build_regularized")
    return replace(trips, settings=trips.settings.model_copy(update={"model": model}))


@pytest.fixture(scope="module")
def expected_of_regularized(
    regularized: Transformed, tmp_path_factory: pytest.TempPathFactory
) -> dict:
    """Its history under the default strategy and `fit`, with unusual options."""
    return train(regularized, tmp_path_factory.mktemp("expected_of_regularized"), **SCHEDULE)


def test_same_seed_and_global_batch_have_the_same_losses(
    regularized: Transformed, expected_of_regularized: dict, tmp_path: Path
) -> None:
    """Regularisation counts once, schedules and bounds count global steps, on any replicas."""
    history = train(regularized, tmp_path, Loop.CUSTOM, strategy="mirrored", **SCHEDULE)
    assert list(history) == list(expected_of_regularized)
    for name, values in expected_of_regularized.items():
        # Of the AUC's thresholds, a score may be on one: then its last digit decides.
        # The weights of classes move logits, which are rounded otherwise in another loop.
        tolerance = 1e-3 if name.endswith("auc") else 5e-5
        assert history[name] == pytest.approx(values, rel=tolerance), name
    assert history["learning_rate"] == pytest.approx([0.01, 0.005, 0.0025])
    fresh = begin(prepare(regularized, tmp_path / "fresh")).model
    assert float(fresh.losses[0]) > 0.1, "the weights count"


def test_several_steps_per_execution_have_the_same_losses(
    trips: Transformed, expected: dict, tmp_path: Path
) -> None:
    """15 steps are no multiple of 4."""
    options = {"strategy": "mirrored", "batch_size": 16, "steps_per_execution": 4}
    traced = []

    class Count(tf_keras.callbacks.Callback):
        def set_model(self, model: tf_keras.Model) -> None:
            class Counting(type(model)):
                def call(self, *arguments: Any, **options: Any) -> Any:
                    traced.append(tf.inside_function())
                    return super().call(*arguments, **options)

            model.__class__ = Counting

    inputs = prepare(trips, tmp_path, **options)
    trained = train_whole(inputs, [Count()])
    for name, values in expected.items():
        assert trained.history[name] == pytest.approx(values, rel=1e-5), name
    assert trained.model.optimizer.iterations.numpy() == 3 * 15
    replicas = inputs.strategy.num_replicas_in_sync
    assert traced == [True] * 2 * replicas, "one graph for the steps, one for the evaluation"


class OwnStep(tf_keras.Model):
    """A model whose steps are its own."""

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        return {**super().train_step(data), "seven": tf.constant(7.0)}


def build_with_own_step(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    inputs = problem.make_inputs()
    joined = tf_keras.layers.Concatenate()([inputs["fare"], inputs["miles"]])
    return OwnStep(inputs, problem.make_output_layer()(joined))


def test_own_train_step_is_used(trips: Transformed, tmp_path: Path) -> None:
    model = ModelSettings(kind=f"{__name__}.build_with_own_step")
    own = replace(trips, settings=trips.settings.model_copy(update={"model": model}))
    assert train(own, tmp_path, steps_per_execution=4, epochs=1)["seven"] == [7.0]


class Interrupt(tf_keras.callbacks.Callback):
    """Ends training as an interruption would, when so many steps are done."""

    def __init__(self, step: int, steps_per_epoch: int) -> None:
        super().__init__()
        self._at = divmod(step, steps_per_epoch)
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self._epoch, batch + 1) >= self._at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("loop", "strategy", "backup_steps", "killed_at", "resumes_at"),
    [
        (Loop.FIT, "mirrored", 4, 23, Position(1, 4)),
        (Loop.CUSTOM, "central_storage", 5, 23, Position(1, 5)),
    ],
)
def test_interrupted_training_resumes_to_the_same_losses(
    trips: Transformed,
    expected: dict,
    tmp_path: Path,
    loop: Loop,
    strategy: str,
    backup_steps: int | None,
    killed_at: int,
    resumes_at: Position,
) -> None:
    options = {"strategy": strategy, "batch_size": 16 if strategy in TWO_REPLICAS else 32}
    runtime = WorkerContext(backup_directory=str(tmp_path / "backup"), backup_steps=backup_steps)
    options["loop"] = loop
    inputs = prepare(trips, tmp_path, runtime, **options)
    assert inputs.data.train.steps == 15
    with pytest.raises(KeyboardInterrupt):
        train_whole(inputs, [Interrupt(killed_at, 15)])

    trained = train_whole(prepare(trips, tmp_path, runtime, **options))
    assert trained.start == resumes_at
    for name, values in expected.items():
        assert trained.history[name] == pytest.approx(values, rel=1e-5), name
    assert len(trained.epoch_seconds) == 3 - resumes_at.epoch
    assert trained.model.optimizer.iterations.numpy() == 3 * 15


def test_early_stopping_and_the_best_epoch_survive_an_interruption(
    trips: Transformed, tmp_path: Path
) -> None:
    """The learning rate grows: the loss is lowest early on, and patience ends training."""
    worse = f"{__name__}.grown"
    options = {"learning_rate": worse, "early_stopping": {"patience": 3}, "epochs": 20}
    options |= {"steps_per_epoch": 13}
    whole = train(trips, tmp_path / "whole", **options)
    assert len(whole["loss"]) == 5
    with pytest.raises(KeyboardInterrupt):
        train_whole(prepare(trips, tmp_path, **options), [Interrupt(44, 13)])
    trained = train_whole(prepare(trips, tmp_path, **options))
    assert trained.start == Position(3, 0)
    assert trained.history["val_loss"] == pytest.approx(whole["val_loss"], rel=1e-5)
    trained = train_whole(prepare(trips, tmp_path, loop=Loop.CUSTOM, **options))
    assert len(trained.history["loss"]) == 5, "a training that has ended is not continued"
    evaluation = trained.evaluation.batches(tf.distribute.InputContext())
    found = trained.model.evaluate(evaluation, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(min(whole["val_loss"]), rel=1e-5)
    kept = WorkerContext(backup_directory=str(tmp_path / "backup"), continued_epochs=5)
    with pytest.raises(KeyboardInterrupt):  # Unless it was an earlier run that had ended.
        train_whole(prepare(trips, tmp_path, kept, **options), [Interrupt(5 * 13 + 1, 13)])


def test_more_epochs_continue_from_the_last_checkpoint(
    trips: Transformed, expected: dict, tmp_path: Path
) -> None:
    kept = {"checkpoints": {"keep": 2}}
    train(trips, tmp_path, epochs=2, early_stopping={"patience": 9}, **kept)
    assert begin(prepare(trips, tmp_path)).start == Position(2, 0)
    trained = train_whole(prepare(trips, tmp_path, **kept))
    for name, values in expected.items():
        assert trained.history[name] == pytest.approx(values, rel=1e-5), name
    backup, alone = tmp_path / "backup", tf.distribute.InputContext()
    assert {file.stem for file in backup.glob("*.index")} == {"ckpt-30", "ckpt-45"}
    latest = tf.train.latest_checkpoint(str(backup))
    assert latest == str(backup / "ckpt-45")
    fresh = begin(prepare(trips, tmp_path / "fresh")).model
    fresh.load_weights(latest).assert_consumed()
    shown = fresh.evaluate(trained.evaluation.batches(alone), verbose=0, return_dict=True)
    assert shown["loss"] == pytest.approx(expected["val_loss"][-1], rel=1e-5)
    assert fresh.optimizer.iterations.numpy() == 45, "its state is there as well"
    found = evaluate_checkpoint(trips.fn_args(tmp_path / "run"), latest)
    assert (found.epoch, found.examples) == (3, 150)
    assert found.metrics["loss"] == pytest.approx(expected["val_loss"][-1], rel=1e-5)
    other = trips.fn_args(tmp_path / "run", model={"hidden_units": [8]})
    with pytest.raises(TrainingError, match=r"ckpt-45 .*'mlp'"):
        evaluate_checkpoint(other, latest)


def test_weights_alone_are_kept_beside_the_backup(
    trips: Transformed, expected: dict, tmp_path: Path
) -> None:
    """Of every second epoch, the last and the best one, whichever that is."""
    kept = {"checkpoints": {"every": 2, "weights_only": True}}
    options = {"strategy": "mirrored", "batch_size": {"global": 32}, **kept}
    trained = train_whole(prepare(trips, tmp_path, **options))
    backup = tmp_path / "backup"
    assert {30, 45, 15 * trained.best_epoch} == {
        int(path.stem.removeprefix("weights-")) for path in backup.glob("weights-*.index")
    }
    names = [name for name, _ in tf.train.list_variables(str(backup / "weights-45"))]
    assert not any("optimizer" in name for name in names)
    model = begin(prepare(trips, tmp_path / "fresh")).model
    with without_optimizer(model):
        model.load_weights(str(backup / "weights-45")).assert_consumed()
    alone = tf.distribute.InputContext()
    shown = model.evaluate(trained.evaluation.batches(alone), verbose=0, return_dict=True)
    assert shown["loss"] == pytest.approx(expected["val_loss"][-1], rel=1e-5)
    found = evaluate_checkpoint(trips.fn_args(tmp_path / "run"), str(backup / "weights-45"))
    assert found.epoch == 3
    assert found.metrics["loss"] == pytest.approx(expected["val_loss"][-1], rel=1e-5)


def test_training_on_fewer_replicas_starts_anew(
    trips: Transformed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An epoch has more steps then; in the first one, a checkpoint's number does not show that."""
    runtime = WorkerContext(backup_directory=str(tmp_path / "backup"), backup_steps=4)
    inputs = prepare(trips, tmp_path, runtime, strategy="mirrored")
    with pytest.raises(KeyboardInterrupt):
        train_whole(inputs, [Interrupt(5, inputs.data.train.steps)])
    assert begin(prepare(trips, tmp_path, runtime)).start == Position()
    assert "15 steps" in caplog.text
    assert not list((tmp_path / "backup").iterdir())


def test_loss_of_nan_keeps_the_last_good_checkpoint(houses: Transformed, tmp_path: Path) -> None:
    """By `fit`, the callbacks of test_training.py end it."""
    diverging = {"schedule": "steps", "values": [0.05, 1e30], "boundaries": [2]}
    with pytest.raises(TrainingError, match=r"at step 3[1-5]"):
        train(houses, tmp_path, Loop.CUSTOM, learning_rate=diverging)
    assert begin(prepare(houses, tmp_path)).start == Position(2, 0)


def test_mixed_precision(shades: Transformed, tmp_path: Path) -> None:
    optimizer = {"kind": "adamw", "clip_norm": 10}
    options = {"precision": "mixed_float16", "loop": Loop.CUSTOM, "optimizer": optimizer}
    fn_args = shades.fn_args(tmp_path, train=options)
    try:
        run_fn(fn_args)
        job = begin(prepare(shades, tmp_path, precision="mixed_float16"))
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    record = read_record(tmp_path / "Format-Serving")
    assert max(record["history"]["val_accuracy"]) > 0.9
    assert job.model.output.dtype == tf.float32, "probabilities in full precision"
    assert job.model.layers[1].compute_dtype == "float16"
    assert isinstance(job.model.optimizer, tf_keras.mixed_precision.LossScaleOptimizer)


@pytest.mark.parametrize(
    ("fixture", "kind", "model", "train_settings"),
    [
        (
            "digits",
            "convnet",
            {"filters": [2, 3]},
            {"augment": {"flip": "horizontal", "mixup": 0.2}},
        ),
        ("trips", "tabular", {"members": 3, "hidden_units": [8], "dropout": 0.0}, {}),
    ],
)
def test_other_models_have_the_same_losses_on_replicas(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    fixture: str,
    kind: str,
    model: dict[str, Any],
    train_settings: dict[str, Any],
) -> None:
    """With batch normalisation, changed pictures, or layers for several members."""
    data = using(request.getfixturevalue(fixture), kind, **model)
    options = {"batch_size": {"global": 32}, "epochs": 2, **train_settings}
    alone = train(data, tmp_path / "alone", **options)
    shared = train(data, tmp_path / "shared", Loop.CUSTOM, strategy="mirrored", **options)
    assert shared["loss"] == pytest.approx(alone["loss"], rel=1e-3)
