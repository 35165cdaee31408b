"""Deep Q-learning: the Q-network, its targets, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.errors import TrainingError
from trainer_module.families.control.replay import Batch
from trainer_module.families.control.task import TargetSettings
from trainer_module.settings import ModelSettings

_CLIP_NORM = 10.0
"""The global norm to which gradients are clipped, as in Wang et al. (2016)."""
_POLYAK = 0.005
"""The default of `target.polyak`."""


def build_network(
    width: int, actions: int, hidden_units: Sequence[int], dueling: bool
) -> tf_keras.Model:
    """Returns a Q-network from observations, [batch, width], to values, [batch, actions] float32.

    Args:
      width: the number of values in an observation.
      actions: the number of actions.
      hidden_units: the units of each dense layer. With `dueling`, the last layer exists twice:
        before the value of the observation, and before the advantages of the actions.
      dueling: whether values are the sum of the observation's value and the actions' advantages
        (Wang et al., 2016, equation 9).
    """
    observation = tf_keras.Input([width], name="observation")
    last = hidden_units[-1:] if dueling else []
    hidden = observation
    for units in hidden_units[: len(hidden_units) - len(last)]:
        hidden = tf_keras.layers.Dense(units, "relu")(hidden)
    if not dueling:
        return tf_keras.Model(observation, tf_keras.layers.Dense(actions)(hidden), name="dqn")
    value_hidden, advantages_hidden = hidden, hidden
    for units in last:
        value_hidden = tf_keras.layers.Dense(units, "relu")(hidden)
        advantages_hidden = tf_keras.layers.Dense(units, "relu")(hidden)
    value = tf_keras.layers.Dense(1)(value_hidden)
    advantages = tf_keras.layers.Dense(actions)(advantages_hidden)
    return tf_keras.Model(observation, combine_dueling(value, advantages), name="dqn")


def combine_dueling(value: tf.Tensor, advantages: tf.Tensor) -> tf.Tensor:
    """Returns Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a'), [batch, actions]."""
    return value + advantages - tf.reduce_mean(advantages, axis=1, keepdims=True)


def targets(
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    next_values: tf.Tensor,
    choice_values: tf.Tensor,
) -> tf.Tensor:
    """Returns the target values of the actions, [batch].

    Args:
      rewards: the rewards of the steps, [batch].
      discounts: the discounts of the next values, [batch].
      next_values: the target network's values of all next actions, [batch, actions].
      choice_values: the values whose maximum chooses the next action, [batch, actions]: the values
        of the target network (Mnih et al., 2015), or with `model.double` the values of the
        Q-network (van Hasselt et al., 2016).
    """
    best = tf.argmax(choice_values, axis=1)
    return rewards + discounts * tf.gather(next_values, best, axis=1, batch_dims=1)


def conservative_loss(values: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
    """Returns the CQL(H) term of conservative Q-learning, [batch].

    The term is log sum over a of exp Q(s, a), minus Q of the logged action (Kumar et al., 2020,
    arXiv:2006.04779, equation 4).

    Args:
      values: the values of all actions, [batch, actions].
      actions: the logged actions, [batch].
    """
    logged = tf.gather(values, actions, axis=1, batch_dims=1)
    return tf.reduce_logsumexp(values, axis=1) - logged


class Learner:
    """A Q-network, its target network and its optimizer, under a strategy."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: ModelSettings,
        width: int,
        actions: int,
        *,
        learning_rate: float,
        target: TargetSettings,
        conservative: float = 0.0,
    ) -> None:
        """Builds both networks with the same weights, and the optimizer.

        Args:
          strategy: the strategy whose replicas share the transitions of a step.
          model: the settings of the network and its targets.
          width: the number of values in an observation.
          actions: the number of actions.
          learning_rate: the learning rate of the optimizer.
          target: the settings of the target network's updates.
          conservative: the weight of `conservative_loss`; 0 online.
        """
        self._strategy, self._model, self._target_settings = strategy, model, target
        self._width, self._actions, self._conservative = width, actions, conservative
        with strategy.scope():
            self._network = self._build()
            self._target = self._build()
            self._target.set_weights(self._network.get_weights())
            self._optimizer = tf_keras.optimizers.Adam(learning_rate, global_clipnorm=_CLIP_NORM)
            self._optimizer.build(self._network.trainable_variables)
        self._values = tf.function(
            self._network, input_signature=[tf.TensorSpec([None, width], tf.float32)]
        )
        self._learn = tf.function(self._steps, autograph=False)
        """The steps as a graph with a loop; tracing a graph of sixteen steps would take seconds."""

    def _build(self) -> tf_keras.Model:
        model = self._model
        return build_network(self._width, self._actions, model.hidden_units, model.dueling)

    @property
    def steps(self) -> int:
        """The number of optimizer steps so far."""
        return int(self._optimizer.iterations.numpy())

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Returns the actions with the highest values, [n] int64, for observations, [n, width]."""
        actions: np.ndarray = np.argmax(self._values(observations).numpy(), axis=1)
        return actions

    def learn(self, batch: Batch, steps: int) -> tuple[np.ndarray, float]:
        """Takes several steps of the optimizer.

        Args:
          batch: the transitions of all steps; each step takes an equal share, which is divided
            evenly among the replicas.
          steps: the number of steps.

        Returns:
          The temporal-difference error of each transition, [n], and the mean loss.

        Raises:
          TrainingError: the loss is not a number.
        """
        parts = [
            np.reshape(values, (steps, -1, *values.shape[1:]))
            for values in (
                batch.observations,
                batch.actions,
                batch.rewards,
                batch.next_observations,
                batch.discounts,
                batch.weights,
            )
        ]
        errors, loss = self._learn(*(tf.constant(part) for part in parts))
        mean = float(loss.numpy())
        if not np.isfinite(mean):
            raise TrainingError(
                f"the mean loss of the Q-network is {mean} in steps {self.steps - steps + 1} to"
                f" {self.steps} of the optimizer; lower train.learning_rate, or scale the rewards."
            )
        return errors.numpy().reshape(-1), mean

    def _steps(self, *parts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs optimizer steps, and returns the errors, [steps, global batch], and the mean loss.

        Args:
          parts: the arrays of transitions, [steps, global batch, ...] each.
        """
        count = parts[0].shape[0]

        def take(
            step: tf.Tensor, errors: tf.TensorArray, losses: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.TensorArray, tf.TensorArray]:
            error, loss = self._strategy.run(self._step, args=[part[step] for part in parts])
            shares = self._strategy.experimental_local_results(error)
            total = self._strategy.reduce("SUM", loss, axis=None)
            self._update_target()
            return (
                step + 1,
                errors.write(step, tf.concat(shares, axis=0)),
                losses.write(step, total),
            )

        begin = (0, tf.TensorArray(tf.float32, count), tf.TensorArray(tf.float32, count))
        _, errors, losses = tf.while_loop(lambda step, *_: step < count, take, begin)
        return errors.stack(), tf.reduce_mean(losses.stack())

    def _step(self, *whole: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs a step on a replica, and returns the errors and the loss of the replica's share.

        Args:
          whole: the arrays of the global batch's transitions, [global batch, ...] each.
        """
        observations, actions, rewards, next_observations, discounts, weights = map(
            self._share, whole
        )
        next_values = self._target(next_observations)
        choice_values = self._network(next_observations) if self._model.double else next_values
        targeted = tf.stop_gradient(targets(rewards, discounts, next_values, choice_values))
        with tf.GradientTape() as tape:
            values = self._network(observations)
            errors = tf.gather(values, actions, axis=1, batch_dims=1) - targeted
            size = tf.abs(errors)
            # Huber's loss: the gradient of an error is at most 1 (Mnih et al., 2015).
            losses = tf.where(size < 1.0, 0.5 * tf.square(errors), size - 0.5)
            if self._conservative:
                losses += self._conservative * conservative_loss(values, actions)
            # The strategy adds the replicas' gradients, so the divisor is the global batch size.
            loss = tf.reduce_sum(weights * losses) / tf.cast(tf.shape(whole[0])[0], tf.float32)
        variables = self._network.trainable_variables
        gradients = tape.gradient(loss, variables)
        self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return errors, loss

    def _share(self, whole: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        count = whole.shape[0] // self._strategy.num_replicas_in_sync
        begin = context.replica_id_in_sync_group * count
        return whole[begin : begin + count]

    def _update_target(self) -> None:
        """Moves the target network towards the Q-network, or copies the Q-network at intervals."""
        target = self._target_settings
        if target.every is None:
            share = target.polyak or _POLYAK
        else:
            is_due = tf.equal(self._optimizer.iterations % target.every, 0)
            share = tf.where(is_due, 1.0, 0.0)
        pairs = zip(self._target.variables, self._network.variables, strict=True)
        for target_variable, variable in pairs:
            target_variable.assign(target_variable + share * (variable - target_variable))

    def get_weights(self) -> list[np.ndarray]:
        """Returns the weights of the Q-network."""
        return [np.array(weights) for weights in self._network.get_weights()]

    def exported(self, weights: Sequence[np.ndarray]) -> tf_keras.Model:
        """Returns a network with the weights, which is not under the strategy."""
        network = self._build()
        network.set_weights(list(weights))
        return network

    def get_state(self) -> dict[str, np.ndarray]:
        """Returns the values of all variables of the networks and the optimizer."""
        return {
            f"variable_{index}": variable.numpy() for index, variable in enumerate(self._variables)
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores the values of all variables."""
        with self._strategy.scope():
            for index, variable in enumerate(self._variables):
                variable.assign(state[f"variable_{index}"])

    @property
    def _variables(self) -> list[tf.Variable]:
        return [
            *self._network.variables,
            *self._target.variables,
            *self._optimizer.variables,
        ]
