"""The `run_fn` of the family `generation`: it trains two networks and exports the generator."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import let_replicas_share_rate
from trainer_module.data.input_pipeline import steps_per_execution
from trainer_module.errors import TrainingError
from trainer_module.export.interface import RawColumn, request_names
from trainer_module.export.plain import export_plain
from trainer_module.families.generation.family import layer_sizes
from trainer_module.families.generation.model import (
    NETWORKS,
    Adversaries,
    Batch,
    NetworkShape,
    build_generator,
)
from trainer_module.families.generation.pictures import (
    Deal,
    generation_task,
    picture_of,
    read_pictures,
)
from trainer_module.families.generation.sampler import (
    NUMBER,
    SEED,
    Sampler,
    make_grid,
)
from trainer_module.record import make_record, write_record
from trainer_module.runtime import read_run
from trainer_module.settings import TrainerSettings
from trainer_module.settings.train import choose_epochs
from trainer_module.strategies import hooks_of
from trainer_module.strategies.base import Processes
from trainer_module.training.callbacks import (
    EpochTimes,
    make_callbacks,
    open_checkpoint,
)
from trainer_module.training.checkpoint import (
    Position,
)
from trainer_module.training.loops import StepLoop
from trainer_module.training.optimizers import build_schedule
from trainer_module.training.plan import RunInputs, TrainingPlan, open_strategy

LOSSES = tuple(f"{name}_loss" for name in NETWORKS)
SAMPLES_FOLDER = "samples"
"""The folder in the model run with a grid of pictures per epoch, generated from the same noise."""
BOARD_FOLDER = "generated"
"""The folder in the model run with the grids for TensorBoard, which reads one growing file per
folder.
"""
_GRID_PICTURES = 64
"""The number of pictures in a grid."""

Logs = dict[str, Any] | None


@dataclass(frozen=True)
class GenerationInputs(RunInputs):
    """The inputs of a training: the run's inputs, the pictures and the shape of the networks."""

    deal: Deal
    shape: NetworkShape


@dataclass(frozen=True)
class TrainedNetworks:
    """The result of a training."""

    model: Adversaries
    plan: TrainingPlan
    start: Position
    """The position at which this process began or resumed."""
    history: Mapping[str, Sequence[float]]
    epoch_seconds: Sequence[float]


def run_fn(fn_args: Any) -> None:
    """Trains a generator under the configured strategy, and exports the average of its weights.

    Args:
      fn_args: TFX's FnArgs, or an object with the same attributes. Its `train_files` are the files
        of ExampleGen; its attribute `runtime` is a `WorkerContext`.

    Raises:
      DataError: the pictures, or their classes, cannot be used.
      TrainingError: the strategy cannot be used, or training diverges.
    """
    inputs = open_inputs(fn_args)  # Opens the settings, then the strategy, then the pictures.
    started = time.monotonic()
    trained = train(inputs)
    seconds = time.monotonic() - started
    export_sampler(inputs, trained.model, fn_args.serving_model_dir)
    write_record(inputs.model_run_dir, describe(inputs, trained, seconds))


def open_inputs(fn_args: Any) -> GenerationInputs:
    """Opens the settings, then the strategy, then the pictures.

    Raises:
      DataError: the pictures, or their classes, cannot be used.
      TrainingError: the strategy cannot be used.
    """
    settings, runtime = read_run(fn_args)
    task = generation_task(settings)
    strategy = open_strategy(settings)
    if not hooks_of(strategy).has_step_hooks:
        raise TrainingError(
            f"train.strategy is {settings.train.strategy.kind}, under which each worker takes its"
            " own steps, but `task: generation` trains its two networks in common steps; use"
            " mirrored or multi_worker_mirrored."
        )
    name, feature = picture_of(settings)
    pictures = read_pictures(fn_args.train_files, name, feature, settings.label)
    classes = pictures.classes if task.conditional else ()
    if task.conditional:
        _check_classes(pictures.labels, classes, settings.label)
    in_step = settings.train.strategy.processes is Processes.IN_STEP
    replicas = strategy.num_replicas_in_sync
    workers = runtime.workers if in_step else 1
    deal = Deal.of(pictures, settings, classes, replicas, workers)
    shape = NetworkShape(
        kind=settings.model.kind,
        noise=task.noise,
        picture=tuple(pictures.values.shape[1:]),
        classes=len(classes),
        sizes=layer_sizes(settings.model),
        synchronises=replicas > 1,
    )
    return GenerationInputs(settings, runtime, strategy, fn_args.model_run_dir, deal, shape)


def _check_classes(labels: np.ndarray, classes: Sequence[str], label: str) -> None:
    missing = int(np.count_nonzero(labels == b""))
    if missing or not classes:
        pictures = (
            f"{missing:,} pictures have none" if missing else "all pictures have the same class"
        )
        raise TrainingError(
            f"task: {{conditional: true}} needs a class for every picture in data.label "
            f"({label!r}), but {pictures}; add the classes, or remove `conditional`."
        )


def train(inputs: GenerationInputs) -> TrainedNetworks:
    """Trains both networks under a strategy, or resumes an interrupted training.

    Raises:
      TrainingError: a loss is not a number.
    """
    settings, strategy, deal = inputs.settings, inputs.strategy, inputs.deal
    plan = plan_training(settings, deal)
    checkpoint = open_checkpoint(inputs, plan)
    plan = plan.resumed_at(checkpoint.start, inputs.runtime.continued_epochs)
    with strategy.scope():
        rate = build_schedule(settings.train, plan.steps)
        model = Adversaries(generation_task(settings), inputs.shape, rate)
        for optimizer in (model.optimizer, model.discriminator_optimizer):
            if callable(rate):
                let_replicas_share_rate(optimizer, rate)
    loop = AdversarialLoop(model, strategy, plan, deal)
    inputs = replace(inputs, extra_callbacks=[Grids(inputs)])
    callbacks = make_callbacks(inputs, plan, checkpoint, losses=LOSSES)
    start = checkpoint.restore(model)
    loop.run(start, callbacks)
    model.settle()
    seconds = next(c.seconds for c in callbacks if isinstance(c, EpochTimes))
    return TrainedNetworks(model, plan, start, checkpoint.history, seconds)


def plan_training(settings: TrainerSettings, deal: Deal) -> TrainingPlan:
    """Returns the plan of epochs and steps.

    The plan keeps the last epoch, because no loss of two adversaries identifies the best epoch.
    """
    epochs = choose_epochs(settings.train, deal.steps)
    steps_per_call = settings.train.steps_per_execution or steps_per_execution(epochs * deal.steps)
    return TrainingPlan(
        epochs, epochs, deal.steps, deal.examples, steps_per_call, chooses_epoch=False
    )


class AdversarialLoop(StepLoop):
    """The training loop that steps both networks."""

    losses = (len(LOSSES),)

    def __init__(
        self,
        model: Adversaries,
        strategy: tf.distribute.Strategy,
        plan: TrainingPlan,
        deal: Deal,
    ) -> None:
        """Prepares the loop without computing anything."""
        super().__init__(model, strategy, plan)
        self._adversaries, self._deal = model, deal
        with strategy.scope():
            self._means = [tf_keras.metrics.Mean(name) for name in LOSSES]

    def read(self, step: int) -> Iterator[Any]:
        """Yields the training batches, beginning at a step that is counted over all epochs."""

        def read(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return self._deal.batches(context, step)

        return self._hooks.iterate(self._strategy, read, read)

    def step(self, batch: Batch) -> tf.Tensor:
        """Runs one step of both networks on a replica, and returns their losses."""
        losses = self._adversaries.learn(batch, self._deal.examples)
        for index, mean in enumerate(self._means):
            mean.update_state(losses[index] * self._deal.replicas)
        return losses

    def end_step(self, losses: tf.Tensor) -> None:
        """Updates the moving average of the generator's weights."""
        self._adversaries.end_step(self._strategy)

    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns the mean losses of the epoch."""
        return [*self._means]

    def step_logs(self, losses: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the losses by network."""
        return dict(zip(LOSSES, tf.unstack(losses), strict=True))


class Grids(tf_keras.callbacks.Callback):
    """Generates pictures from the same noise after each epoch, for TensorBoard and as a file."""

    def __init__(self, inputs: GenerationInputs) -> None:
        super().__init__()
        folder, shape = inputs.model_run_dir, inputs.shape
        self._folder = os.path.join(folder, SAMPLES_FOLDER)
        self._board = tf.summary.create_file_writer(os.path.join(folder, BOARD_FOLDER))
        seed = inputs.settings.train.seed
        self._grid_inputs = {
            "noise": tf.random.stateless_normal([_GRID_PICTURES, shape.noise], [seed, -1])
        }
        if shape.classes:
            self._grid_inputs["label"] = tf.range(_GRID_PICTURES) % shape.classes

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Generates and writes the grid of an epoch."""
        self.model.settle()
        grid = make_grid((self.model.average(self._grid_inputs, training=False) + 1.0) / 2.0)
        pixels = tf.cast(tf.round(grid * 255.0), tf.uint8)
        tf.io.gfile.makedirs(self._folder)
        path = os.path.join(self._folder, f"epoch-{epoch + 1:04d}.png")
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(tf.io.encode_png(pixels).numpy())
        with self._board.as_default():
            tf.summary.image("generated", pixels[tf.newaxis], epoch)
        self._board.flush()


def export_sampler(inputs: GenerationInputs, model: Adversaries, directory: str) -> None:
    """Exports the average of the generator's weights as a SavedModel.

    Args:
      inputs: the inputs of the training.
      model: the trained networks, after `settle`.
      directory: the folder of the SavedModel.
    """
    settings, shape = inputs.settings, inputs.shape
    network = build_generator(shape)
    network.set_weights(model.average.get_weights())
    classes = inputs.deal.classes
    names = [SEED, NUMBER, *([settings.label] if classes else [])]
    requests = request_names(names)
    columns = [
        RawColumn(name, request, "int64" if is_integer else "string", is_whole=is_integer, width=1)
        for name, request in zip(names, requests, strict=True)
        for is_integer in [name in (SEED, NUMBER)]
    ]
    sampler = Sampler(network, shape.noise, requests[-1] if classes else "", classes)
    export_plain(sampler, sampler.answer, columns, settings.target, directory, sampler.signatures())


def describe(inputs: GenerationInputs, trained: TrainedNetworks, seconds: float) -> dict[str, Any]:
    """Returns the record of a training as JSON, with the keys of supervised records.

    Args:
      inputs: the inputs of the training.
      trained: the result of the training.
      seconds: the duration of the loop since the last interruption.
    """
    deal, plan = inputs.deal, trained.plan
    epochs = len(trained.history[LOSSES[0]])
    # The first epoch also traces the graph, so it counts only if there is no other epoch.
    _, *later_epochs = trained.epoch_seconds or [0.0]
    timed_epochs = later_epochs or [*trained.epoch_seconds]
    return make_record(
        inputs.settings,
        inputs.runtime,
        seconds,
        sum(timed_epochs) / (len(timed_epochs) * plan.steps) if timed_epochs else 0.0,
        deal.examples * deal.parts,
        loop="custom",
        replicas=deal.replicas,
        global_batch_size=deal.examples,
        epochs=epochs,
        best_epoch=epochs,
        examples={"train": len(deal.pictures.labels)},
        source="memory",
        steps=epochs * plan.steps,
        resumed_at_step=plan.steps_until(trained.start),
        history=dict(trained.history),
    )
