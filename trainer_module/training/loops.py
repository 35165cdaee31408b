"""Who runs the steps: Keras's `fit`, or a loop written out here. Both train the same model.

The loop is that of https://www.tensorflow.org/tutorials/distribute/custom_training, with several
steps in one graph. What to change for another way of training: `CustomLoop.step`, or
a `StepLoop` where it is no compiled model that learns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import require_resumed_fit, use_several_steps
from trainer_module.data.loading import TrainingData
from trainer_module.settings import Loop
from trainer_module.strategies import hooks_of
from trainer_module.training.checkpoint import Position
from trainer_module.training.plan import TrainingPlan

Callbacks = Sequence[tf_keras.callbacks.Callback]


def train_by_fit(
    model: tf_keras.Model,
    data: TrainingData,
    plan: TrainingPlan,
    start: Position,
    callbacks: Callbacks,
) -> None:
    """Trains a compiled model by `fit`, which evaluates it after every epoch.

    Args:
      model: built in the scope of its strategy.
      data: what is learnt from and looked at.
      plan: the epochs and steps.
      start: where to begin.
      callbacks: the last one is the `CheckpointCallback`.

    Raises:
      InternalError: the steps of an interrupted epoch that are done would be done again.
    """
    strategy = model.distribute_strategy
    hooks = hooks_of(strategy)
    if start.step:
        require_resumed_fit()
    # A list of its own, as `fit` would tell them of the epochs up to `last_epoch` alone.
    told = tf_keras.callbacks.CallbackList(
        list(callbacks),
        add_history=True,
        model=model,
        epochs=plan.epochs,
        steps=plan.steps,
        verbose=0,
    )
    if plan.steps_per_execution > 1 and hooks.repeats_steps:
        use_several_steps(model)
    model.fit(
        data.train.distribute(strategy, plan.steps_until(start)),
        initial_epoch=start.epoch,
        epochs=plan.last_epoch,
        steps_per_epoch=plan.steps,
        validation_data=data.evaluation.distribute(strategy) if hooks.has_step_hooks else None,
        validation_steps=data.evaluation.steps,
        callbacks=told,
        verbose=0,
    )


def train_by_custom_loop(
    model: tf_keras.Model,
    data: TrainingData,
    plan: TrainingPlan,
    start: Position,
    callbacks: Callbacks,
) -> None:
    """Trains a compiled model by the loop below; takes what `train_by_fit` does."""
    CustomLoop(model, data, plan).run(start, callbacks)


LOOPS = {Loop.FIT: train_by_fit, Loop.CUSTOM: train_by_custom_loop}
"""By `train.loop` who runs the steps, and leaves the trained model in place."""


class StepLoop:
    """The epochs and steps of one training, whatever a step learns; several steps are one graph."""

    losses: ClassVar[tuple[int, ...]] = ()
    """The shape of what a step gives: one loss, or several."""

    def __init__(
        self, model: tf_keras.Model, strategy: tf.distribute.Strategy, plan: TrainingPlan
    ) -> None:
        """Prepares the loop; nothing is computed yet.

        Args:
          model: what the callbacks see.
          strategy: that it was built under.
          plan: the epochs and steps.
        """
        self._model, self._strategy, self._plan = model, strategy, plan
        self._hooks = hooks_of(strategy)
        self._run_steps = tf.function(self._steps)

    def run(self, start: Position, callbacks: Callbacks) -> None:
        """Runs all epochs that are left; the last one of the callbacks is the checkpoint's."""
        model = self._model
        told = tf_keras.callbacks.CallbackList(
            list(callbacks),
            model=model,
            epochs=self._plan.epochs,
            steps=self._plan.steps,
            verbose=0,
        )
        callbacks[-1].metrics = self.metrics
        batches = self.read(self._plan.steps_until(start))
        model.stop_training = False
        told.on_train_begin()
        for epoch in range(start.epoch, self._plan.last_epoch):
            self.begin_epoch()
            told.on_epoch_begin(epoch)
            self._run_epoch(batches, told, start.step if epoch == start.epoch else 0)
            logs = {metric.name: float(metric.result()) for metric in self.metrics()}
            told.on_epoch_end(epoch, logs | self.evaluate(told))
            if model.stop_training:
                break
        told.on_train_end()

    def read(self, step: int) -> Iterator[Any]:
        """Returns the batches of training from a step on, counted over all epochs."""
        raise NotImplementedError

    def step(self, batch: Any) -> tf.Tensor:
        """One step, as each replica runs it: its part of the loss, or of several losses."""
        raise NotImplementedError

    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """What an epoch under way has come to so far."""
        raise NotImplementedError

    def begin_epoch(self) -> None:
        """Forgets what the last epoch came to."""
        for metric in self.metrics():
            metric.reset_state()

    def end_step(self, losses: tf.Tensor) -> None:
        """Does what follows a step, outside of all replicas, with the losses of all of them."""

    def step_logs(self, losses: tf.Tensor) -> dict[str, tf.Tensor]:
        """What callbacks see of some steps, by the mean of what each of them gave."""
        return {"loss": losses}

    def evaluate(self, callbacks: tf_keras.callbacks.CallbackList) -> dict[str, float]:
        """What is measured at the end of an epoch, by name."""
        del callbacks
        return {}

    def _steps(self, batches: Iterator[Any], steps: int) -> tf.Tensor:
        """Several steps in one graph, of which there is one for each number of steps."""
        total = tf.zeros(self.losses)
        for _ in tf.range(steps):
            per_replica = self._strategy.run(self.step, (next(batches),))
            losses = self._strategy.reduce("SUM", per_replica, axis=None)
            self.end_step(losses)
            total += losses
        return total / steps

    def _run_epoch(
        self, batches: Iterator[Any], callbacks: tf_keras.callbacks.CallbackList, done: int
    ) -> None:
        while done < self._plan.steps:
            steps = min(self._plan.steps_per_execution, self._plan.steps - done)
            if self._hooks.has_step_hooks:
                callbacks.on_train_batch_begin(done)
            losses = self._hooks.run_steps(self._strategy, self._run_steps, batches, steps)
            if self._hooks.has_step_hooks:
                callbacks.on_train_batch_end(done + steps - 1, self.step_logs(losses))
            done += steps
        self._hooks.end_epoch(self._strategy)


class CustomLoop(StepLoop):
    """The epochs and steps of a compiled model."""

    def __init__(self, model: tf_keras.Model, data: TrainingData, plan: TrainingPlan) -> None:
        """Prepares the loop; nothing is computed yet."""
        super().__init__(model, model.distribute_strategy, plan)
        self._data = data
        self._replicas = self._strategy.num_replicas_in_sync
        self._per_example_loss = _per_example_loss(model)
        with self._strategy.scope():
            self._loss = tf_keras.metrics.Mean("loss")
        if plan.steps_per_execution > 1 and self._hooks.repeats_steps:
            use_several_steps(model)  # To evaluate.

    def read(self, step: int) -> Iterator[Any]:
        """Returns the batches of the train split from a step on, counted over all epochs."""
        train = self._data.train
        return self._hooks.iterate(self._strategy, train.reading_from(step), train.read_by_servers)

    def step(self, batch: tuple[Any, ...]) -> tf.Tensor:
        """One optimizer step, as each replica runs it.

        Args:
          batch: the replica's features by name, its labels [batch, 1], and weights [batch] where
              there are some.

        Returns:
          The replica's part of the loss: the parts of all replicas add up to the global batch's
          mean, so that their gradients do as well.
        """
        features, labels, *weights = batch
        with tf.GradientTape() as tape:
            output = tf.cast(self._model(features, training=True), tf.float32)
            loss = tf.nn.compute_average_loss(
                self._per_example_loss(labels, output),
                *weights,
                global_batch_size=self._data.train.global_batch_size,
            )
            if self._model.losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(self._model.losses))
        self._model.optimizer.minimize(loss, self._model.trainable_variables, tape=tape)
        self._model.compiled_metrics.update_state(labels, output)
        self._loss.update_state(loss * self._replicas)
        return loss

    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns the loss, and what the model was compiled with."""
        return [self._loss, *self._model.compiled_metrics.metrics]

    def begin_epoch(self) -> None:
        """Forgets what the last epoch came to."""
        self._loss.reset_states()
        self._model.compiled_metrics.reset_state()

    def evaluate(self, callbacks: tf_keras.callbacks.CallbackList) -> dict[str, float]:
        """What the model comes to on the eval split, by name."""
        if not self._hooks.has_step_hooks:
            return {}  # A callback does it.
        found = self._model.evaluate(
            self._data.evaluation.distribute(self._strategy),
            steps=self._data.evaluation.steps,
            verbose=0,
            return_dict=True,
            callbacks=callbacks,
        )
        return {f"val_{name}": float(value) for name, value in found.items()}


def _per_example_loss(model: tf_keras.Model) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns the loss that a model is compiled with, before it is averaged: [batch] float32."""
    loss = tf_keras.losses.get(model.loss)
    return loss.call if isinstance(loss, tf_keras.losses.Loss) else loss
