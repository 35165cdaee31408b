"""Reads the weights of an exported model without loading the model's code or graph."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from pydantic import PlainValidator, TypeAdapter

from trainer_module.compat.keras import read_values
from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.settings.tasks import as_task

_TAIL = re.compile(r"(/part_\d+)?(:\d+)?$")
"""The parts of a variable's name that TensorFlow adds: the shard on a parameter server, and the
number of the output.
"""

_NUMBERED = re.compile(r"(.+?)(?:_(\d+))?")
"""A name that Keras generated, with the number that makes the name unique within the process."""


@dataclass
class Weight:
    """A weight of a model; on parameter servers, several variables may each hold a shard of its
    rows.
    """

    name: str
    """The name in a checkpoint, such as `dense_1/kernel`."""
    variables: list[Any] = field(default_factory=list)
    """The variables that hold the shards, in the order of their rows."""

    @property
    def is_learnt(self) -> bool:
        """Whether training changes the weight; constants and the state of random generators keep
        their initial values.
        """
        return self.variables[0].trainable or self.name.rpartition("/")[2].startswith("moving_")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole weight, with the rows of all shards."""
        first = tuple(self.variables[0].shape)
        return (sum(part.shape[0] for part in self.variables), *first[1:]) if first else ()

    def read(self) -> np.ndarray:
        """Returns the current value of the weight."""
        parts = [tf.identity(part).numpy() for part in self.variables]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def assign(self, value: np.ndarray) -> None:
        """Assigns a value to the weight; call the method in the scope of the strategy."""
        if len(self.variables) == 1:
            self.variables[0].assign(value)
            return
        start = 0
        for part in self.variables:
            part.assign(value[start : start + part.shape[0]])
            start += part.shape[0]


def plain_name(variable: Any) -> str:
    """Returns the name under which checkpoints store a variable."""
    return _TAIL.sub("", variable.name)


def weights_of(model: tf_keras.Model) -> list[Weight]:
    """Returns the weights of a built model, without weights that share their name with another
    weight.
    """
    found: dict[str, Weight] = {}
    starts: Counter[str] = Counter()
    for variable in model.weights:
        name = plain_name(variable)
        # The shards of a weight are numbered; a weight begins at its first shard or its only
        # variable.
        starts[name] += not re.search(r"/part_[1-9]\d*(:\d+)?$", variable.name)
        found.setdefault(name, Weight(name)).variables.append(variable)
    return [weight for name, weight in found.items() if starts[name] == 1]


def shared_names(model: tf_keras.Model) -> list[str]:
    """Returns the names of trainable weights that `weights_of` leaves out because they are not
    unique.
    """
    unique = {weight.name for weight in weights_of(model)}
    return sorted({plain_name(variable) for variable in model.trainable_weights} - unique)


def layers_of(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """Yields the model itself and all its layers, including nested layers."""
    yield model
    yield from (part for part in model.submodules if isinstance(part, tf_keras.layers.Layer))


def generated_names(model: tf_keras.Model) -> set[str]:
    """Returns the names that Keras generated for unnamed layers, without their numbers."""
    names = set()
    for layer in layers_of(model):
        name = _split(layer.name)[0]
        # Keras makes a layer, such as tf.math.reduce_sum_3, of an operation outside of a layer.
        is_operation = name.startswith("tf.")
        if is_operation or name.replace("_", "") in (kind := _letters(layer), f"private{kind}"):
            names.add(name)
    return names


def stable_names(names: Iterable[str], generated: Iterable[str]) -> dict[str, str]:
    """Returns names whose numbers count from 0 in order: `dense#0` and `dense#1` for dense_7 and
    dense_8.

    Keras numbers the layers of a process, so a model gets other numbers when it is not the first
    model of the process. Names that a user has chosen are kept.

    Args:
      names: the names of weights or layers, with `/` between a layer and its parts.
      generated: the names that Keras generated, without their numbers.

    Returns:
      The stable name by the name.
    """
    generated = set(generated)
    paths = {name: name.split("/") for name in names}
    numbers: dict[tuple[str, ...], set[int]] = {}
    for path in paths.values():
        for depth, part in enumerate(path):
            base, number = _split(part)
            numbers.setdefault((*path[:depth], base), set()).add(number)

    def stable(path: list[str]) -> Iterator[str]:
        for depth, part in enumerate(path):
            base, number = _split(part)
            all_numbers = sorted(numbers[*path[:depth], base])
            yield f"{base}#{all_numbers.index(number)}" if base in generated else part

    return {name: "/".join(stable(path)) for name, path in paths.items()}


def _split(name: str) -> tuple[str, int]:
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2] or 0)) if match else (name, 0)


def _letters(layer: tf_keras.layers.Layer) -> str:
    return type(layer).__name__.lower().replace("_", "")


POSITIONAL_LAYERS = ("bert_positions", "bert_types")
"""The built-in models' embeddings of positions and types, whose rows do not depend on a vocabulary.
"""

AxisKind = Literal["plain", "vocabulary", "classes", "columns", "unsure"]


@dataclass(frozen=True)
class Axis:
    """An axis of a weight."""

    kind: AxisKind = "plain"
    """The kind of thing that an index along the axis stands for.

    plain: a unit of the layer. vocabulary: a value of a categorical feature. classes: an output of
    the task. columns: an input of the layer. unsure: perhaps a value of an unknown feature, perhaps
    a class.
    """
    feature: str = ""
    """The name of the categorical feature, for the kind `vocabulary`."""
    parts: tuple[tuple[str, int], ...] = ()
    """The features and layers that the input concatenates, in order, each with its width; for the
    kind `columns`.
    """


Axes = dict[str, list[Axis]]


def find_axes(model: tf_keras.Model, problem: Problem) -> Axes:
    """Returns the axes of each weight of a built model, by the weight's name.

    The function follows the graph of a functional model from its inputs to its outputs. For other
    models, and inside layers, it relies on the names that the built-in models give their layers.
    """
    axes = {weight.name: [Axis()] * len(weight.shape) for weight in weights_of(model)}
    is_graph = bool(getattr(model, "outputs", None))
    _mark_outputs(model, problem, axes, is_graph)
    _mark_embeddings(model, problem, axes)
    if is_graph:
        _mark_columns(model, axes, {f.name: f.places for f in problem.features if f.places})
    return axes


def _mark_outputs(model: tf_keras.Model, problem: Problem, axes: Axes, is_graph: bool) -> None:
    width = problem.output_units
    layers = [layer for layer in layers_of(model) if layer.name == "output"]
    if is_graph:
        layers = [layer for tensor in model.outputs for layer in _output_layers(tensor)]
    output_weights = {plain_name(variable) for layer in layers for variable in layer.weights}
    for weight in weights_of(model):
        if weight.shape and weight.shape[-1] == width:
            if weight.name in output_weights:
                axes[weight.name][-1] = Axis("classes")
            elif not is_graph and problem.classes and not output_weights:
                axes[weight.name][-1] = Axis("unsure")


def _output_layers(tensor: Any) -> Iterator[tf_keras.layers.Layer]:
    """Yields the layers with weights whose units correspond one by one to the units of a tensor."""
    layer = tensor.node.layer
    if _is_graph(layer):
        for output in layer.outputs:
            yield from _output_layers(output)
        return
    if layer.weights:
        yield layer
        return
    for source in tensor.node.keras_inputs:
        if source.shape.rank and tensor.shape.rank and source.shape[-1] == tensor.shape[-1]:
            yield from _output_layers(source)


def _is_graph(layer: tf_keras.layers.Layer) -> bool:
    """Returns whether a layer is a functional model; a Sequential model is not."""
    is_sequential = isinstance(layer, tf_keras.Sequential)
    return isinstance(layer, tf_keras.Model) and bool(layer.inputs) and not is_sequential


def _graph_layers(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """Yields the layers of a functional model and of the functional models nested in it."""
    for layer in model.layers:
        yield layer
        if _is_graph(layer):
            yield from _graph_layers(layer)


def _mark_embeddings(model: tf_keras.Model, problem: Problem, axes: Axes) -> None:
    features = {feature.name for feature in problem.features if feature.vocabulary_size}
    by_name = {f"{name}_{use}": name for name in features for use in ("embedding", "wide")}
    for layer in layers_of(model):
        if not isinstance(layer, tf_keras.layers.Embedding) or not layer.weights:
            continue
        if layer.name in POSITIONAL_LAYERS:
            continue
        name = plain_name(layer.weights[0])
        if name in axes:
            feature = _embedded_feature(layer, features) or by_name.get(layer.name)
            axes[name][0] = Axis("vocabulary", feature) if feature else Axis("unsure")


def _embedded_feature(layer: tf_keras.layers.Layer, features: set[str]) -> str | None:
    """Returns the feature whose indices are the input of an embedding, or None."""
    tensor = _single_input(layer)
    while tensor is not None:
        source = tensor.node.layer
        if source.name in features:
            return source.name
        if isinstance(source, tf_keras.layers.Concatenate):
            # Concatenated features share one vocabulary, which belongs to the first feature.
            tensor = source.inbound_nodes[0].keras_inputs[0]
            continue
        keeps = isinstance(source, tf_keras.layers.Flatten | tf_keras.layers.Reshape)
        if not keeps and not getattr(source, "keeps_indices", False):
            return None
        tensor = _single_input(source)
    return None


def _mark_columns(model: tf_keras.Model, axes: Axes, places: Mapping[str, tuple[str, ...]]) -> None:
    for layer in _graph_layers(model):
        tensor = _single_input(layer)
        if isinstance(layer, tf_keras.Sequential) and layer.layers:
            layer = layer.layers[0]
        if tensor is None or tensor.shape.rank != 2:
            continue
        parts = tuple(_split_by_place(_concatenated_parts(tensor), places))
        for weight, axis in _column_axes(layer).items():
            variable = getattr(layer, weight)
            # On parameter servers the weight may consist of shards, whose names contain its name.
            name = plain_name(getattr(variable, "variables", [variable])[0])
            if name in axes and all(width for _, width in parts):
                axes[name][axis] = Axis("columns", parts=parts)


def _column_axes(layer: tf_keras.layers.Layer) -> dict[str, int]:
    """Returns the axis along which a weight has an index per input of the layer, by the weight's
    attribute.
    """
    if isinstance(layer, tf_keras.layers.Dense):
        return {"kernel": 0}
    return getattr(layer, "column_axes", {})


def _concatenated_parts(tensor: Any) -> Iterator[tuple[str, int]]:
    """Yields the name and the width, 0 if unknown, of each part that a tensor concatenates."""
    layer, inputs = tensor.node.layer, tensor.node.keras_inputs
    if isinstance(layer, tf_keras.layers.Concatenate) and tensor.shape.rank == 2:
        for source in inputs:
            yield from _concatenated_parts(source)
    elif isinstance(layer, tf_keras.layers.Flatten | tf_keras.layers.Dropout):
        yield from _concatenated_parts(inputs[0])
    elif times := getattr(layer, "outputs_per_input", 0):
        yield from ((name, width * times) for name, width in _concatenated_parts(inputs[0]))
    else:
        yield layer.name, tensor.shape[1:].num_elements() or 0


def _split_by_place(
    parts: Iterable[tuple[str, int]], places: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, int]]:
    """Yields the parts; a feature whose numbers have names becomes a part for each number."""
    for name, width in parts:
        labels = places.get(name, ())
        if labels and width % len(labels) == 0:
            yield from ((label, width // len(labels)) for label in labels)
        else:
            yield name, width


def _single_input(layer: tf_keras.layers.Layer) -> Any | None:
    """Returns the only tensor that a layer is called with, or None if there is not exactly one."""
    calls = [node.keras_inputs for node in layer.inbound_nodes if node.keras_inputs]
    return calls[0][0] if len(calls) == 1 and len(calls[0]) == 1 else None


DESCRIPTION_FILE = os.path.join("assets.extra", "scopeline.json")
"""The path of the description within a SavedModel.

Serving reads only warm-up requests in `assets.extra`, and copies of the model keep the folder.
"""


_Text = Annotated[str, PlainValidator(str)]
"""A string in which bytes that are not UTF-8 become single surrogates (`surrogateescape`)."""


@dataclass(frozen=True)
class Feature:
    """An input of the model."""

    name: str
    kind: str
    shape: tuple[int, ...]
    indices: int = 0
    """The number of indices of a categorical feature, including out-of-vocabulary buckets."""
    vocabulary: tuple[_Text, ...] | None = None
    """The value of each index of a categorical feature before the buckets, or None if unknown."""
    indices_of: str = ""
    """The source of the indices of a categorical feature without a vocabulary, such as a hash;
    empty for a feature with a vocabulary.
    """


@dataclass(frozen=True)
class DescribedWeight:
    """A weight with a name that is the same in every training run, and the meaning of its axes."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Description:
    """The inputs, outputs and weights of a model."""

    model: str
    """The kind of the model, as in the config."""
    task: str
    """The name of the task, as in the config."""
    classes: tuple[_Text, ...]
    outputs: tuple[_Text, ...]
    """The meaning of each unit of the last layer, as defined by the task."""
    features: tuple[Feature, ...]
    weights: dict[str, DescribedWeight]
    """The described weights, by their names in the model's checkpoint."""

    def keys(self, axis: Axis, size: int) -> list[Hashable] | None:
        """Returns a key for each index along an axis, or None if the meaning of the indices is
        unknown.

        In two models, indices with equal keys have the same meaning.
        """
        match axis.kind:
            case "vocabulary":
                keys = self._values(axis.feature)
            case "classes":
                keys = list(self.outputs)
            case "columns":
                # An occurrence number distinguishes parts that are concatenated twice.
                times = [axis.parts[:i].count(part) for i, part in enumerate(axis.parts)]
                parts = zip(axis.parts, times, strict=True)
                keys = [(*part, time, i) for part, time in parts for i in range(part[1])]
            case "unsure":
                # The keys of two models are equal if their classes and all vocabularies are equal.
                meaning = hash((self.classes, tuple(f.vocabulary for f in self.features)))
                keys = [(meaning, size, i) for i in range(size)]
            case _:
                keys = [(size, i) for i in range(size)]
        return keys if keys is not None and len(keys) == size else None

    def feature(self, name: str) -> Feature | None:
        """Returns the feature with a name, or None."""
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
        # The values that share a bucket depend on the number of buckets.
        return [*feature.vocabulary, *((buckets, i) for i in range(buckets))]


def describe_model(
    model: tf_keras.Model, problem: Problem, tft_output: tft.TFTransformOutput, kind: str
) -> Description:
    """Returns the description of a built model.

    Args:
      model: a built model.
      problem: the problem that the model was built for.
      tft_output: the source of the vocabularies.
      kind: the kind of the model, as in the config.
    """
    axes = find_axes(model, problem)
    layers = {name for found in axes.values() for axis in found for name, _ in axis.parts}
    stable = stable_names({*axes, *layers}, generated_names(model))

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
    """Writes a description into the folder of an exported model."""
    path = os.path.join(directory, DESCRIPTION_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "w") as file:
        json.dump(asdict(description), file, separators=(",", ":"))


def read_description(directory: str) -> Description | None:
    """Returns the description that `write_description` wrote, or None if there is no file.

    Raises:
      ValueError: the file does not hold a description of a model.
    """
    path = os.path.join(directory, DESCRIPTION_FILE)
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    try:
        found = json.loads(text)
        # Descriptions without outputs come from versions whose tasks had no options.
        found.setdefault("outputs", as_task(found["task"]).outputs(tuple(found["classes"])))
        return TypeAdapter(Description).validate_python(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not the description of a model: {reason}") from error


def _vocabulary(tft_output: tft.TFTransformOutput, name: str) -> tuple[str, ...] | None:
    """Returns the vocabulary that the preprocessing stores under a feature's name, or None."""
    if tft_output.vocabulary_file_by_name(name) is None:
        return None
    values = tft_output.vocabulary_by_name(name)
    return tuple(value.decode("utf-8", errors="surrogateescape") for value in values)


READING_ERRORS = (tf.errors.OpError, ValueError, KeyError)
"""The errors that reading a missing or damaged model raises."""


@dataclass(frozen=True)
class BaseModel:
    """The model from whose weights training starts."""

    path: str
    description: Description | None
    """The description in the model's folder, or None if another program exported the model."""
    values: dict[str, np.ndarray]
    """The values of the described weights, by their stable names."""
    axes: dict[str, tuple[Axis, ...]]
    """The axes of the described weights, by their stable names."""


def read_base_model(path: str) -> BaseModel:
    """Reads the checkpoint of a SavedModel, independent of the strategy that trained the model.

    Raises:
      TrainingError: the model, or a part of it, cannot be read.
    """
    try:
        description = read_description(path)
        values = read_values(path)
    except READING_ERRORS as error:
        raise TrainingError(
            f"warm start: the model at {path} cannot be read: {error_line(error)}; restore the "
            "model, or set schedule.warm_start: false to train from scratch."
        ) from error
    described = description.weights if description else {}
    return BaseModel(
        path,
        description,
        {described[name].name: value for name, value in values.items() if name in described},
        {weight.name: weight.axes for weight in described.values()},
    )


def error_line(error: Exception) -> str:
    """Returns the message of an error in one line, without its full stop."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    return " ".join(message.split()).rstrip(".")
