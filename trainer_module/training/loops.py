"""The training loops: Keras's `fit`, and a custom loop. Both train the same model.

The custom loop follows https://www.tensorflow.org/tutorials/distribute/custom_training, but
a call of the graph runs several steps. To train differently, change `CustomLoop.step`, or write a
`StepLoop` if the model is not compiled.
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
    """Trains a compiled model by `fit`, which evaluates the model after every epoch.

    Args:
      model: a model built in the scope of its strategy.
      data: the train and evaluation examples.
      plan: the epochs and steps.
      start: the position where training begins or resumes.
      callbacks: the callbacks; the last callback is the `CheckpointCallback`.

    Raises:
      InternalError: Keras has changed, and `fit` could repeat steps of an interrupted epoch.
    """
    strategy = model.distribute_strategy
    hooks = hooks_of(strategy)
    if start.step:
        require_resumed_fit()
    # `fit` would report `last_epoch` as the number of epochs, so it gets its own CallbackList.
    callback_list = tf_keras.callbacks.CallbackList(
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
        callbacks=callback_list,
        verbose=0,
    )


def train_by_custom_loop(
    model: tf_keras.Model,
    data: TrainingData,
    plan: TrainingPlan,
    start: Position,
    callbacks: Callbacks,
) -> None:
    """Trains a compiled model by `CustomLoop`, with the arguments of `train_by_fit`."""
    CustomLoop(model, data, plan).run(start, callbacks)


LOOPS = {Loop.FIT: train_by_fit, Loop.CUSTOM: train_by_custom_loop}
"""The function that trains a model in place, by the value of `train.loop`."""


class StepLoop:
    """A training loop over epochs and steps; subclasses define a step.

    A call of the graph runs several steps.
    """

    losses: ClassVar[tuple[int, ...]] = ()
    """The shape of a step's losses, which is () for a single loss."""

    def __init__(
        self, model: tf_keras.Model, strategy: tf.distribute.Strategy, plan: TrainingPlan
    ) -> None:
        """Prepares the loop without computing anything.

        Args:
          model: the model of the callbacks.
          strategy: the strategy that the model was built under.
          plan: the epochs and steps.
        """
        self._model, self._strategy, self._plan = model, strategy, plan
        self._hooks = hooks_of(strategy)
        self._run_steps = tf.function(self._steps)

    def run(self, start: Position, callbacks: Callbacks) -> None:
        """Runs the remaining epochs; the last callback is the checkpoint callback."""
        model = self._model
        callback_list = tf_keras.callbacks.CallbackList(
            list(callbacks),
            model=model,
            epochs=self._plan.epochs,
            steps=self._plan.steps,
            verbose=0,
        )
        callbacks[-1].metrics = self.metrics
        batches = self.read(self._plan.steps_until(start))
        model.stop_training = False
        callback_list.on_train_begin()
        for epoch in range(start.epoch, self._plan.last_epoch):
            self.begin_epoch()
            callback_list.on_epoch_begin(epoch)
            self._run_epoch(batches, callback_list, start.step if epoch == start.epoch else 0)
            logs = {metric.name: float(metric.result()) for metric in self.metrics()}
            callback_list.on_epoch_end(epoch, logs | self.evaluate(callback_list))
            if model.stop_training:
                break
        callback_list.on_train_end()

    def read(self, step: int) -> Iterator[Any]:
        """Returns the training batches, beginning at a step that is counted over all epochs."""
        raise NotImplementedError

    def step(self, batch: Any) -> tf.Tensor:
        """Runs a step on a replica, and returns the replica's part of the losses."""
        raise NotImplementedError

    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """Returns the metrics of the current epoch."""
        raise NotImplementedError

    def begin_epoch(self) -> None:
        """Resets the metrics at the beginning of an epoch."""
        for metric in self.metrics():
            metric.reset_state()

    def end_step(self, losses: tf.Tensor) -> None:
        """Runs after a step, outside of the replicas, with the sums of their losses."""
        del losses  # AutoGraph cannot convert an empty body; its error would keep the data alive.

    def step_logs(self, losses: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the logs of an execution for callbacks, from its mean losses."""
        return {"loss": losses}

    def evaluate(self, callbacks: tf_keras.callbacks.CallbackList) -> dict[str, float]:
        """Returns the metrics that are evaluated at the end of an epoch, by name."""
        del callbacks
        return {}

    def _steps(self, batches: Iterator[Any], steps: int) -> tf.Tensor:
        """Runs several steps in a graph, and returns their mean losses."""
        total = tf.zeros(self.losses)
        for _ in tf.range(steps):
            per_replica = self._strategy.run(self.step, (next(batches),))
            losses = self._strategy.reduce("SUM", per_replica, axis=None)
            self.end_step(losses)
            total += losses
        return total / steps

    def _run_epoch(
        self, batches: Iterator[Any], callbacks: tf_keras.callbacks.CallbackList, completed: int
    ) -> None:
        while completed < self._plan.steps:
            steps = min(self._plan.steps_per_execution, self._plan.steps - completed)
            if self._hooks.has_step_hooks:
                callbacks.on_train_batch_begin(completed)
            losses = self._hooks.run_steps(self._strategy, self._run_steps, batches, steps)
            if self._hooks.has_step_hooks:
                callbacks.on_train_batch_end(completed + steps - 1, self.step_logs(losses))
            completed += steps
        self._hooks.end_epoch(self._strategy)


class CustomLoop(StepLoop):
    """The custom training loop of a compiled model."""

    def __init__(self, model: tf_keras.Model, data: TrainingData, plan: TrainingPlan) -> None:
        """Prepares the loop without computing anything."""
        super().__init__(model, model.distribute_strategy, plan)
        self._data = data
        self._replicas = self._strategy.num_replicas_in_sync
        self._per_example_loss = _per_example_loss(model)
        with self._strategy.scope():
            self._loss = tf_keras.metrics.Mean("loss")
        if plan.steps_per_execution > 1 and self._hooks.repeats_steps:
            use_several_steps(model)  # Evaluation uses the functions.

    def read(self, step: int) -> Iterator[Any]:
        """Returns the batches of the train split, beginning at a step counted over all epochs."""
        train = self._data.train
        return self._hooks.iterate(self._strategy, train.reading_from(step), train.read_by_servers)

    def step(self, batch: tuple[Any, ...]) -> tf.Tensor:
        """Runs one optimizer step on a replica.

        Args:
          batch: the replica's features by name, its labels [batch, 1], and, if examples have
            weights, its weights [batch].

        Returns:
          The replica's part of the loss. The parts of all replicas add up to the mean over the
          global batch; their gradients add up to the gradient of this mean.
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
        """Returns the loss and the metrics of the compiled model."""
        return [self._loss, *self._model.compiled_metrics.metrics]

    def begin_epoch(self) -> None:
        """Resets the loss and the metrics at the beginning of an epoch."""
        self._loss.reset_states()
        self._model.compiled_metrics.reset_state()

    def evaluate(self, callbacks: tf_keras.callbacks.CallbackList) -> dict[str, float]:
        """Returns the metrics of the model on the evaluation examples, with the prefix `val_`."""
        if not self._hooks.has_step_hooks:
            return {}  # A callback evaluates the model.
        metrics = self._model.evaluate(
            self._data.evaluation.distribute(self._strategy),
            steps=self._data.evaluation.steps,
            verbose=0,
            return_dict=True,
            callbacks=callbacks,
        )
        return {f"val_{name}": float(value) for name, value in metrics.items()}


def _per_example_loss(model: tf_keras.Model) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns the loss function of a compiled model, which returns [batch] float32."""
    loss = tf_keras.losses.get(model.loss)
    return loss.call if isinstance(loss, tf_keras.losses.Loss) else loss
