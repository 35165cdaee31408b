"""The generator and the discriminator of `gan` and `dcgan`, with their losses and training step.

The networks of `gan` consist of dense layers. The networks of `dcgan` are those of Radford et al.
(2015, arXiv:1511.06434) with two differences. Filters are 4x4, as filters of 5x5 with a stride of 2
cause checkerboard artefacts (Odena et al., 2016). The discriminator has no batch normalisation, as
in TensorFlow's guide: with it, the generator for a few thousand pictures had a lower recall (0.4
instead of 0.7 on the digits). `normalise_convolutions` normalises the discriminator's weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from trainer_module.families.generation.family import doublings
from trainer_module.families.generation.task import GanLoss, GenerationTask

SLOPE = 0.2
"""The slope of LeakyReLU below 0."""
_FILTER = 4
"""The side of a filter."""
_MAX_FILTERS = 512
_HIDDEN_UNITS = (256, 512, 1024)
"""The default units of the dense layers of `gan`."""
_POWER_ITERATIONS = 8
"""The number of iterations that compute a spectral norm."""

layers = tf_keras.layers


@dataclass(frozen=True)
class NetworkShape:
    """The sizes of the two networks and of their inputs."""

    kind: str
    """The kind of the model: `gan` or `dcgan`."""
    noise: int
    """The number of noise values per picture."""
    picture: tuple[int, int, int]
    """The height, the width and the channels of a picture."""
    classes: int = 0
    """The number of classes, or 0 without classes."""
    sizes: tuple[int, ...] = ()
    """The units or filters of the generator's layers, from the noise to the picture, or () for the
    default.
    """
    synchronises: bool = False
    """Whether batch normalisation uses the examples of all replicas."""


def build_generator(shape: NetworkShape, name: str = "generator") -> tf_keras.Model:
    """Returns a new network that generates pictures.

    Its inputs are `noise`, [batch, noise], and if there are classes `label`, [batch] int32. Its
    output is pictures, [batch, height, width, channels] float32 in -1..1.
    """
    inputs = {"noise": layers.Input([shape.noise], name="noise")}
    hidden = inputs["noise"]
    if shape.classes:
        inputs["label"] = layers.Input([], dtype="int32", name="label")
        one_hot = layers.Lambda(lambda label: tf.one_hot(label, shape.classes))(inputs["label"])
        hidden = layers.Concatenate()([hidden, one_hot])
    body = _generate_dense if shape.kind == "gan" else _generate_by_convolutions
    return tf_keras.Model(inputs, body(hidden, shape), name=name)


def _generate_dense(hidden: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    for units in shape.sizes or _HIDDEN_UNITS:
        hidden = layers.LeakyReLU(SLOPE)(layers.Dense(units)(hidden))
        hidden = _normalise(shape, 0.8)(hidden)
    hidden = layers.Dense(math.prod(shape.picture), activation="tanh")(hidden)
    return layers.Reshape(shape.picture)(hidden)


def _generate_by_convolutions(hidden: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    height, width, channels = shape.picture
    filters = _filters(shape)
    times = len(filters)
    base = (height >> times, width >> times, filters[0])
    hidden = layers.Dense(math.prod(base), use_bias=False)(hidden)
    hidden = layers.Reshape(base)(layers.ReLU()(_normalise(shape)(hidden)))
    for count in filters[1:]:
        hidden = _doubling(count, use_bias=False)(hidden)
        hidden = layers.ReLU()(_normalise(shape)(hidden))
    return _doubling(channels, activation="tanh")(hidden)


def build_discriminator(shape: NetworkShape) -> tf_keras.Model:
    """Returns a new network that discriminates pictures.

    Its inputs are `picture`, in -1..1, and if there are classes `label`. Its output is logits,
    [batch] float32. With classes, the product of a class vector and the last features is added to
    the logit (Miyato and Koyama, 2018, arXiv:1802.05637).
    """
    inputs = {"picture": layers.Input(shape.picture, name="picture")}
    body = _discriminate_dense if shape.kind == "gan" else _discriminate_by_convolutions
    features = body(inputs["picture"], shape)
    logit = layers.Dense(1)(features)
    if shape.classes:
        inputs["label"] = layers.Input([], dtype="int32", name="label")
        vector = layers.Embedding(shape.classes, features.shape[-1])(inputs["label"])
        logit = layers.Add()([logit, layers.Dot(1)([features, vector])])
    logit = layers.Reshape([])(logit)
    return tf_keras.Model(inputs, logit, name="discriminator")


def _discriminate_dense(picture: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    hidden = layers.Flatten()(picture)
    for units in reversed(shape.sizes or _HIDDEN_UNITS):
        hidden = layers.LeakyReLU(SLOPE)(layers.Dense(units)(hidden))
    return hidden


def _discriminate_by_convolutions(picture: tf.Tensor, shape: NetworkShape) -> tf.Tensor:
    hidden = picture
    for count in reversed(_filters(shape)):
        hidden = layers.Conv2D(count, _FILTER, 2, "same", kernel_initializer=_start())(hidden)
        hidden = layers.LeakyReLU(SLOPE)(hidden)
    return layers.Flatten()(hidden)


def normalise_convolutions(network: tf_keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Divides the kernel of each convolution by its spectral norm.

    Spectral normalisation (Miyato et al., 2018, arXiv:1802.05957) limits the slope of the
    discriminator, which gives the generator useful gradients. Call the function in the context of
    the strategy, and not in that of a replica.
    """
    for layer in network.layers:
        if isinstance(layer, layers.Conv2D):
            strategy.extended.update(
                layer.kernel, lambda kernel: kernel.assign(kernel / spectral_norm(kernel))
            )


def spectral_norm(kernel: tf.Tensor) -> tf.Tensor:
    """Returns the spectral norm of a kernel, [..., filters], as a matrix with `filters` columns.

    Power iteration starts at a constant vector, so that all replicas compute the same norm.
    """
    filters = kernel.shape[-1]
    matrix = tf.reshape(kernel, [-1, filters])
    vector = tf.random.stateless_normal([filters, 1], [0, 1])
    for _ in range(_POWER_ITERATIONS):
        vector = tf.matmul(matrix, matrix @ tf.math.l2_normalize(vector), transpose_a=True)
    return tf.norm(matrix @ tf.math.l2_normalize(vector))


def _filters(shape: NetworkShape) -> Sequence[int]:
    """Returns the number of filters at each size, from the smallest size to the largest."""
    if shape.sizes:
        return shape.sizes
    times = doublings(*shape.picture[:2])
    return [min(64 << index, _MAX_FILTERS) for index in reversed(range(times))]


def _doubling(filters: int, **options: object) -> tf_keras.layers.Layer:
    return layers.Conv2DTranspose(
        filters, _FILTER, 2, "same", kernel_initializer=_start(), **options
    )


def _start() -> tf_keras.initializers.Initializer:
    return tf_keras.initializers.RandomNormal(stddev=0.02)


def _normalise(shape: NetworkShape, momentum: float = 0.9) -> tf_keras.layers.Layer:
    return layers.BatchNormalization(momentum=momentum, synchronized=shape.synchronises)


_TINY = 1e-12
"""A constant that makes the gradient of a norm of 0 finite."""


def cross_entropy(logit: tf.Tensor, target: float) -> tf.Tensor:
    """Returns the cross-entropy of a logit and a target probability."""
    return tf.nn.sigmoid_cross_entropy_with_logits(tf.fill(tf.shape(logit), target), logit)


def generator_loss(task: GenerationTask, fake: tf.Tensor) -> tf.Tensor:
    """Returns the loss of the generator for each picture.

    Args:
      task: the task with the kind of loss.
      fake: the discriminator's logits of generated pictures.
    """
    return -fake if task.loss is GanLoss.WASSERSTEIN else cross_entropy(fake, 1.0)


def discriminator_loss(task: GenerationTask, real: tf.Tensor, fake: tf.Tensor) -> tf.Tensor:
    """Returns the loss of the discriminator for each pair of pictures, without gradient penalty.

    Only the labels of real pictures are smoothed (Salimans et al., 2016, arXiv:1606.03498).

    Args:
      task: the task with the kind of loss.
      real: the discriminator's logits of real pictures.
      fake: the discriminator's logits of generated pictures.
    """
    if task.loss is GanLoss.WASSERSTEIN:
        return fake - real
    return cross_entropy(real, 1.0 - task.smoothing) + cross_entropy(fake, 0.0)


def gradient_penalty(
    discriminator: Callable[[tf.Tensor], tf.Tensor],
    real: tf.Tensor,
    fake: tf.Tensor,
    share: tf.Tensor,
) -> tf.Tensor:
    """Returns the gradient penalty of Gulrajani et al. (2017, arXiv:1704.00028) without its weight.

    The penalty is the squared difference between 1 and the norm of the discriminator's gradient, at
    a point between a real and a generated picture.

    Args:
      discriminator: a function from pictures to the discriminator's logits.
      real: real pictures, [batch, height, width, channels].
      fake: generated pictures, [batch, height, width, channels].
      share: the weight of the real picture in each pair, [batch] in 0..1.
    """
    share = share[:, tf.newaxis, tf.newaxis, tf.newaxis]
    between = share * real + (1.0 - share) * fake
    with tf.GradientTape() as tape:
        tape.watch(between)
        logits = discriminator(between)
    slopes = tape.gradient(logits, between)
    norm = tf.sqrt(tf.reduce_sum(tf.square(slopes), axis=[1, 2, 3]) + _TINY)
    return tf.square(norm - 1.0)


GENERATOR, DISCRIMINATOR = NETWORKS = ("generator", "discriminator")
"""The networks in the order of their losses in a step."""

Batch = dict[str, tf.Tensor]
"""The inputs of a step by name.

`picture` [batch, height, width, channels] float32 in -1..1, `noise` [batch, noise], `share` [batch]
in 0..1, and with classes `label` [batch] int32.
"""


class Adversaries(tf_keras.Model):
    """A generator, its moving average and a discriminator, with their optimizers.

    A checkpoint of this model contains the complete state of the training.
    """

    def __init__(
        self,
        task: GenerationTask,
        shape: NetworkShape,
        rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
    ) -> None:
        """Builds the networks. Call the constructor in the scope of the strategy.

        Args:
          task: the task with the losses.
          shape: the sizes of the networks.
          rate: the learning rate of both networks, or its schedule.
        """
        super().__init__(name="adversaries")
        self.task = task
        self.generator = build_generator(shape)
        self.average = build_generator(shape, "average")
        self.average.set_weights(self.generator.get_weights())
        self.discriminator = build_discriminator(shape)
        # Gulrajani et al. (2017) use a momentum of 0, and Radford et al. (2015) use 0.5.
        momentum, decay = (0.0, 0.9) if task.loss is GanLoss.WASSERSTEIN else (0.5, 0.999)
        self.optimizer = tf_keras.optimizers.Adam(rate, momentum, decay)
        self.discriminator_optimizer = tf_keras.optimizers.Adam(rate, momentum, decay)
        self.optimizer.build(self.generator.trainable_variables)
        self.discriminator_optimizer.build(self.discriminator.trainable_variables)

    def call(self, inputs: Batch, training: bool = False) -> tf.Tensor:
        """Returns pictures that the averaged generator generates."""
        return self.average(inputs, training=training)

    def learn(self, batch: Batch, examples: int) -> tf.Tensor:
        """Runs a training step on a replica.

        Args:
          batch: the inputs, which consist of an equal part for each step of the discriminator; the
            generator learns from the noise of the last part.
          examples: the number of examples in a part, on all replicas.

        Returns:
          The losses of the generator and the discriminator, [2] float32. The sums over the replicas
          are the means over the examples.
        """
        parts = self.task.steps_of_critic
        split = {name: tf.split(values, parts) for name, values in batch.items()}
        *earlier, last = [{n: values[part] for n, values in split.items()} for part in range(parts)]
        for part in earlier:
            fake = self.generator(_generator_inputs(part), training=True)
            with tf.GradientTape() as tape:
                discriminator_losses = self._discriminator_loss(
                    part, fake, self._discriminate(fake, part), examples
                )
            self._apply(
                self.discriminator_optimizer, self.discriminator, tape, discriminator_losses
            )
        # In the last part, both networks learn from the same pictures and logits.
        with tf.GradientTape() as generator_tape, tf.GradientTape() as discriminator_tape:
            fake = self.generator(_generator_inputs(last), training=True)
            logits = self._discriminate(fake, last)
            loss = tf.reduce_sum(generator_loss(self.task, logits)) / examples
            discriminator_losses = self._discriminator_loss(last, fake, logits, examples)
        self._apply(self.optimizer, self.generator, generator_tape, loss)
        self._apply(
            self.discriminator_optimizer,
            self.discriminator,
            discriminator_tape,
            discriminator_losses,
        )
        return tf.stack([loss, discriminator_losses])

    def _discriminator_loss(
        self, part: Batch, fake: tf.Tensor, logits: tf.Tensor, examples: int
    ) -> tf.Tensor:
        """Returns the loss of the discriminator; `logits` are those of the pictures `fake`."""
        real = part["picture"]
        losses = discriminator_loss(self.task, self._discriminate(real, part), logits)
        if self.task.loss is GanLoss.WASSERSTEIN:
            losses += self.task.penalty * gradient_penalty(
                lambda pictures: self._discriminate(pictures, part), real, fake, part["share"]
            )
        return tf.reduce_sum(losses) / examples

    @staticmethod
    def _apply(
        optimizer: tf_keras.optimizers.Optimizer,
        network: tf_keras.Model,
        tape: tf.GradientTape,
        loss: tf.Tensor,
    ) -> None:
        """Applies the gradients of a loss, summed over all replicas."""
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))

    def _discriminate(self, pictures: tf.Tensor, part: Batch) -> tf.Tensor:
        inputs = {"picture": pictures} | {k: v for k, v in part.items() if k == "label"}
        return self.discriminator(inputs, training=True)

    def end_step(self, strategy: tf.distribute.Strategy) -> None:
        """Normalises the discriminator and updates the moving average after a step.

        A discriminator with a gradient penalty is not normalised, as the penalty limits its slope.
        Call the method in the context of the strategy, and not in that of a replica.
        """
        if self.task.loss is not GanLoss.WASSERSTEIN:
            normalise_convolutions(self.discriminator, strategy)
        self._move_average(strategy)

    def _move_average(self, strategy: tf.distribute.Strategy) -> None:
        """Updates the moving average.

        In the first steps, the decay is smaller, so that the initial weights soon have no effect.
        """
        steps = tf.cast(self.optimizer.iterations, tf.float32)
        decay = tf.minimum(self.task.ema, steps / (steps + 10.0))
        pairs = zip(
            self.average.trainable_variables, self.generator.trainable_variables, strict=True
        )
        for mean, weight in pairs:
            strategy.extended.update(
                mean,
                lambda mean, weight: mean.assign(decay * mean + (1 - decay) * weight),
                (weight,),
            )

    def settle(self) -> None:
        """Copies the statistics of batch normalisation from the generator to its average."""
        pairs = zip(
            self.average.non_trainable_variables,
            self.generator.non_trainable_variables,
            strict=True,
        )
        for copy, original in pairs:
            copy.assign(original)


def _generator_inputs(part: Batch) -> Batch:
    return {name: values for name, values in part.items() if name in ("noise", "label")}
