"""Pictures changed at random while a model is trained, a batch at a time.

What is drawn for a picture follows from the seed, the step and its place in the batch of all
replicas: so it is the same under every strategy, by both loops, and after an interruption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from trainer_module.data.augmentation.mixing import Examples, draw_shares, mix
from trainer_module.data.augmentation.pictures import DRAWS, change_pictures
from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.settings import AugmentSettings


@dataclass(frozen=True)
class BatchPlace:
    """Where a batch stands in training."""

    step: tf.Tensor
    """Counted over all epochs, int64."""
    first: tf.Tensor
    """The place of its first example in the batch of all replicas, int64."""
    together: int
    """Examples in the batch of all replicas."""


@dataclass(frozen=True)
class Augmentation:
    """The changes of the pictures of a training."""

    settings: AugmentSettings
    pictures: tuple[str, ...]
    """The features that are pictures."""
    seed: int

    @property
    def mixes(self) -> bool:
        """Whether each example is mixed with another one."""
        return bool(self.settings.mixup)

    def change(self, batch: Examples, others: Examples | None, place: BatchPlace) -> Examples:
        """Changes the pictures of a batch, and mixes it with others where that is wanted."""
        features = self._changed(batch[0], place, 0)
        if others is None:
            return features, *batch[1:]
        mixed_with = self._changed(others[0], place, 1)
        seeds = self._seeds(place, len(self.pictures), 0)
        shares = _own(draw_shares(place.together, seeds, self.settings.mixup), place, batch[1])
        return mix((features, *batch[1:]), (mixed_with, *others[1:]), shares)

    def _changed(
        self, features: Mapping[str, tf.Tensor], place: BatchPlace, part: int
    ) -> dict[str, tf.Tensor]:
        """The features with other pixels; both parts of a mixture have changes of their own."""
        changed = dict(features)
        for number, name in enumerate(self.pictures):
            seeds = self._seeds(place, number, part)
            drawn = tf.random.stateless_uniform([place.together, DRAWS], seeds, -1.0, 1.0)
            drawn = _own(drawn, place, features[name])
            changed[name] = change_pictures(features[name], self.settings, drawn)
        return changed

    def _seeds(self, place: BatchPlace, number: int, part: int) -> tf.Tensor:
        """Of one kind of draws in one step: [2] int64."""
        count = 2 * (len(self.pictures) + 1)
        return tf.stack([tf.constant(self.seed, tf.int64), place.step * count + 2 * number + part])


def _own(drawn: tf.Tensor, place: BatchPlace, batch: tf.Tensor) -> tf.Tensor:
    """What is drawn for the examples of a batch, of what is drawn for those of all replicas."""
    first = tf.cast(place.first, tf.int32)
    return drawn[first : first + tf.shape(batch)[0]]


def make_augmentation(
    settings: AugmentSettings | None, problem: Problem, seed: int
) -> Augmentation | None:
    """The changes that the settings ask for; None if they ask for none.

    Raises:
      TrainingError: there is no picture to change, or something that cannot be mixed.
    """
    if settings is None:
        return None
    pictures = tuple(feature.name for feature in problem.of_kind("image"))
    if not pictures:
        raise TrainingError(
            "train.augment changes pictures, but no feature is an image; leave it out, or give a "
            "column {type: image, height: ..., width: ...}."
        )
    others = [feature for feature in problem.features if feature.dtype != tf.float32]
    if settings.mixup and others:
        raise TrainingError(
            f"train.augment.mixup mixes all that a model is given, but {others[0].name!r} is "
            f"{others[0].kind}, of which there is no mean; leave mixup out, or the feature."
        )
    return Augmentation(settings, pictures, seed)
