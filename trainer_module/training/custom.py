"""Training by a loop written out: a step function that the strategy runs on every replica.

As in https://www.tensorflow.org/tutorials/distribute/custom_training, with several steps in one
graph. What to change for another way of training: `CustomLoop.step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from trainer_module.training.job import TrainingJob
from trainer_module.training.several_steps import use_several_steps


def train_by_custom_loop(job: TrainingJob) -> None:
    """Trains the model of a job, evaluating it after every epoch."""
    CustomLoop(job).run()


class CustomLoop:
    """The epochs and steps of one training."""

    def __init__(self, job: TrainingJob) -> None:
        """Prepares the loop; nothing is computed yet."""
        self._job = job
        self._model = job.model
        self._strategy = job.strategy
        self._replicas = job.strategy.num_replicas_in_sync
        self._per_example_loss = _per_example_loss(job.model)
        with job.strategy.scope():
            self._loss = tf_keras.metrics.Mean("loss")
        self._run_steps = tf.function(self._steps)
        if job.steps_per_execution > 1:
            use_several_steps(job.model)  # To evaluate.
        job.backup.metrics = lambda: [self._loss, *job.model.compiled_metrics.metrics]

    def run(self) -> None:
        """Runs all epochs that are left."""
        job, model = self._job, self._model
        callbacks = tf_keras.callbacks.CallbackList(
            list(job.callbacks), model=model, epochs=job.epochs, steps=job.train.steps, verbose=0
        )
        batches = self._batches()
        model.stop_training = False
        callbacks.on_train_begin()
        for epoch in range(job.start.epoch, job.last_epoch):
            self._loss.reset_states()
            model.compiled_metrics.reset_state()
            callbacks.on_epoch_begin(epoch)
            self._run_epoch(batches, callbacks, job.start.step if epoch == job.start.epoch else 0)
            logs = {metric.name: float(metric.result()) for metric in job.backup.metrics()}
            callbacks.on_epoch_end(epoch, logs | self._evaluate(callbacks))
            if model.stop_training:
                break
        callbacks.on_train_end()

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
                global_batch_size=self._job.train.global_batch_size,
            )
            if self._model.losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(self._model.losses))
        self._model.optimizer.minimize(loss, self._model.trainable_variables, tape=tape)
        self._model.compiled_metrics.update_state(labels, output)
        self._loss.update_state(loss * self._replicas)
        return loss

    def _evaluate(self, callbacks: tf_keras.callbacks.CallbackList) -> dict[str, float]:
        if self._job.is_asynchronous:
            return {}  # A callback does it.
        batches = self._job.evaluation.distribute(self._strategy)
        found = self._model.evaluate(
            batches,
            steps=self._job.evaluation.steps,
            verbose=0,
            return_dict=True,
            callbacks=callbacks,
        )
        return {f"val_{name}": float(value) for name, value in found.items()}

    def _steps(self, batches: Iterator[Any], steps: int) -> tf.Tensor:
        """Several steps in one graph, of which there is one for each number of steps."""
        total = 0.0
        for _ in tf.range(steps):
            per_replica = self._strategy.run(self.step, (next(batches),))
            total += self._strategy.reduce("SUM", per_replica, axis=None)
        return total / steps

    def _run_epoch(
        self, batches: Iterator[Any], callbacks: tf_keras.callbacks.CallbackList, done: int
    ) -> None:
        total = self._job.train.steps
        while done < total:
            steps = min(self._job.steps_per_execution, total - done)
            if self._job.is_asynchronous:
                # Whichever worker is free takes them; nobody waits for the result.
                self._coordinator.schedule(self._run_steps, (batches, steps))
            else:
                callbacks.on_train_batch_begin(done)
                loss = self._run_steps(batches, steps)
                callbacks.on_train_batch_end(done + steps - 1, {"loss": loss})
            done += steps
        if self._job.is_asynchronous:
            self._coordinator.join()

    @property
    def _coordinator(self) -> tf.distribute.coordinator.ClusterCoordinator:
        return tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def _batches(self) -> Iterator[Any]:
        job = self._job
        if not job.is_asynchronous:
            return iter(job.train.distribute(self._strategy, job.start_step))
        return iter(
            self._coordinator.create_per_worker_dataset(
                lambda: self._strategy.distribute_datasets_from_function(job.train.read_by_servers)
            )
        )


def _per_example_loss(model: tf_keras.Model) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """The loss that a model is compiled with, before it is averaged: [batch] float32."""
    loss = tf_keras.losses.get(model.loss)
    return loss.call if isinstance(loss, tf_keras.losses.Loss) else loss
