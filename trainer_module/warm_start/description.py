"""What an exported model says of itself, for the training that goes on from it."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.problem import Problem
from trainer_module.tasks import as_task
from trainer_module.warm_start.axes import Axis, find_axes
from trainer_module.warm_start.weights import made_up_names, stable_names

DESCRIPTION_FILE = os.path.join("assets.extra", "scopeline.json")
"""In a SavedModel: serving looks for nothing but warm-up requests there, and copies keep it."""


@dataclass(frozen=True)
class Feature:
    """One input of the model."""

    name: str
    kind: str
    shape: tuple[int, ...]
    indices: int = 0
    """categorical: how many, out-of-vocabulary buckets included."""
    vocabulary: tuple[str, ...] | None = None
    """categorical: the value of each index before the buckets; None if they are not known.

    Bytes that are no UTF-8 are single surrogates, by Python's `surrogateescape`.
    """
    indices_of: str = ""
    """categorical: what indices count where their number alone tells, such as the buckets of a
    hash; empty for a vocabulary."""


@dataclass(frozen=True)
class DescribedWeight:
    """A weight under the name that it has in every training, and what its axes stand for."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Description:
    """A model's inputs, outputs and weights."""

    model: str
    """Its kind, as in the config."""
    task: str
    """Its name, as in the config."""
    classes: tuple[str, ...]
    outputs: tuple[str, ...]
    """What each unit of the last layer stands for, as the task has it."""
    features: tuple[Feature, ...]
    weights: dict[str, DescribedWeight]
    """By their names in the model's checkpoint."""

    def keys(self, axis: Axis, size: int) -> list[Hashable] | None:
        """What each index along an axis stands for; None if that is not known.

        Indices with equal keys mean the same in two models.
        """
        match axis.kind:
            case "vocabulary":
                keys = self._values(axis.feature)
            case "classes":
                keys = list(self.outputs)
            case "columns":
                # What is joined twice is told apart by which time it is.
                times = [axis.parts[:i].count(part) for i, part in enumerate(axis.parts)]
                parts = zip(axis.parts, times, strict=True)
                keys = [(*part, time, i) for part, time in parts for i in range(part[1])]
            case "unsure":
                # The same, as long as nothing has changed that it could stand for.
                told = hash((self.classes, tuple(f.vocabulary for f in self.features)))
                keys = [(told, size, i) for i in range(size)]
            case _:
                keys = [(size, i) for i in range(size)]
        return keys if keys is not None and len(keys) == size else None

    def feature(self, name: str) -> Feature | None:
        """The feature of a name, if there is one."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Feature]:
        return {feature.name: feature for feature in self.features}

    def _values(self, name: str) -> list[Hashable] | None:
        feature = self.feature(name)
        if feature is None:
            return None
        if feature.indices_of:
            return [(feature.indices_of, feature.indices, i) for i in range(feature.indices)]
        if feature.vocabulary is None:
            return None
        buckets = feature.indices - len(feature.vocabulary)
        # Which values share a bucket depends on how many buckets there are.
        return [*feature.vocabulary, *((buckets, i) for i in range(buckets))]


def describe_model(
    model: tf_keras.Model, problem: Problem, tft_output: tft.TFTransformOutput, kind: str
) -> Description:
    """Describes a built model.

    Args:
      model: whose weights exist.
      problem: that it was built for.
      tft_output: for the vocabularies.
      kind: the kind of the model, as in the config.
    """
    axes = find_axes(model, problem)
    layers = {name for found in axes.values() for axis in found for name, _ in axis.parts}
    stable = stable_names({*axes, *layers}, made_up_names(model))

    def describe_axis(axis: Axis) -> Axis:
        parts = tuple((stable[name], width) for name, width in axis.parts)
        return Axis(axis.kind, axis.feature, parts)

    return Description(
        model=kind,
        task=problem.target.kind,
        classes=problem.classes,
        outputs=problem.target.outputs(problem.classes),
        features=tuple(
            Feature(
                f.name,
                f.kind,
                f.shape,
                f.vocabulary_size,
                _vocabulary(tft_output, f.name),
                f.indices_of,
            )
            for f in problem.features
        ),
        weights={
            name: DescribedWeight(stable[name], tuple(map(describe_axis, found)))
            for name, found in axes.items()
        },
    )


def write_description(description: Description, directory: str) -> None:
    """Writes it into the folder of an exported model."""
    path = os.path.join(directory, DESCRIPTION_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "w") as file:
        json.dump(asdict(description), file, separators=(",", ":"))


def read_description(directory: str) -> Description | None:
    """What `write_description` wrote; None if there is nothing.

    Raises:
      ValueError: it is no such description.
    """
    path = os.path.join(directory, DESCRIPTION_FILE)
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    try:
        return _from_json(json.loads(text))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is no description of a model: {error!r}") from error


def _from_json(value: Mapping[str, Any]) -> Description:
    classes = tuple(value["classes"])
    return Description(
        model=value["model"],
        task=value["task"],
        classes=classes,
        # Models that do not say are of tasks without options.
        outputs=tuple(value.get("outputs") or as_task(value["task"]).outputs(classes)),
        features=tuple(
            Feature(
                item["name"],
                item["kind"],
                tuple(item["shape"]),
                item["indices"],
                None if item["vocabulary"] is None else tuple(item["vocabulary"]),
                item.get("indices_of", ""),
            )
            for item in value["features"]
        ),
        weights={
            name: DescribedWeight(weight["name"], tuple(map(_axis_from_json, weight["axes"])))
            for name, weight in value["weights"].items()
        },
    )


def _axis_from_json(value: Mapping[str, Any]) -> Axis:
    parts = tuple((name, width) for name, width in value["parts"])
    return Axis(value["kind"], value["feature"], parts)


def _vocabulary(tft_output: tft.TFTransformOutput, name: str) -> tuple[str, ...] | None:
    """Under the feature's name, where Scopeline's preprocessing keeps it."""
    if tft_output.vocabulary_file_by_name(name) is None:
        return None
    values = tft_output.vocabulary_by_name(name)
    return tuple(value.decode("utf-8", errors="surrogateescape") for value in values)
