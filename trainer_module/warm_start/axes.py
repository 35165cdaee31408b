"""What the rows and columns of a model's weights stand for: values, classes, inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import tf_keras

from trainer_module.problem import Problem
from trainer_module.warm_start.weights import layers_of, plain_name, weights_of

OF_PLACES = ("bert_positions", "bert_types")
"""Layers of the zoo whose rows are of places in a text: they mean the same in every vocabulary."""

AxisKind = Literal["plain", "vocabulary", "classes", "columns", "unsure"]


@dataclass(frozen=True)
class Axis:
    """One axis of a weight."""

    kind: AxisKind = "plain"
    """What an index along it stands for.

    plain: a unit of the layer. vocabulary: a value of a categorical feature. classes: an output of
    the task. columns: an input of the layer. unsure: perhaps a value or a class, of whatever.
    """
    feature: str = ""
    """vocabulary: its name."""
    parts: tuple[tuple[str, int], ...] = ()
    """columns: the features and layers that it joins, in order, each with its width."""


Axes = dict[str, list[Axis]]


def find_axes(model: tf_keras.Model, problem: Problem) -> Axes:
    """The axes of each weight of a built model, by the weight's name.

    A functional model is followed from its inputs to its outputs. Of any other, and of what a layer
    does within itself, only names tell: those that the zoo gives.
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
        layers = [layer for tensor in model.outputs for layer in _ending_in(tensor)]
    known = {plain_name(variable) for layer in layers for variable in layer.weights}
    for weight in weights_of(model):
        if weight.shape and weight.shape[-1] == width:
            if weight.name in known:
                axes[weight.name][-1] = Axis("classes")
            elif not is_graph and problem.classes and not known:
                axes[weight.name][-1] = Axis("unsure")


def _ending_in(tensor: Any) -> Iterator[tf_keras.layers.Layer]:
    """The layers with weights whose output comes to this one, unit by unit."""
    layer = tensor.node.layer
    if _is_graph(layer):
        for within in layer.outputs:
            yield from _ending_in(within)
        return
    if layer.weights:
        yield layer
        return
    for before in tensor.node.keras_inputs:
        if before.shape.rank and tensor.shape.rank and before.shape[-1] == tensor.shape[-1]:
            yield from _ending_in(before)


def _is_graph(layer: tf_keras.layers.Layer) -> bool:
    """Whether a layer is a functional model; a sequential one is taken for its first layer."""
    is_sequential = isinstance(layer, tf_keras.Sequential)
    return isinstance(layer, tf_keras.Model) and bool(layer.inputs) and not is_sequential


def _graph_layers(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """The layers of a functional model, and of those that are layers of it."""
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
        if layer.name in OF_PLACES:
            continue
        name = plain_name(layer.weights[0])
        if name in axes:
            feature = _embedded(layer, features) or by_name.get(layer.name)
            axes[name][0] = Axis("vocabulary", feature) if feature else Axis("unsure")


def _embedded(layer: tf_keras.layers.Layer, features: set[str]) -> str | None:
    """The feature whose indices go into a layer as they are."""
    tensor = _single_input(layer)
    while tensor is not None:
        before = tensor.node.layer
        if before.name in features:
            return before.name
        if isinstance(before, tf_keras.layers.Concatenate):
            # What is joined has one vocabulary, that of the first.
            tensor = before.inbound_nodes[0].keras_inputs[0]
            continue
        keeps = isinstance(before, tf_keras.layers.Flatten | tf_keras.layers.Reshape)
        if not keeps and not getattr(before, "keeps_indices", False):
            return None
        tensor = _single_input(before)
    return None


def _mark_columns(model: tf_keras.Model, axes: Axes, places: Mapping[str, tuple[str, ...]]) -> None:
    for layer in _graph_layers(model):
        tensor = _single_input(layer)
        if isinstance(layer, tf_keras.Sequential) and layer.layers:
            layer = layer.layers[0]
        if tensor is None or tensor.shape.rank != 2:
            continue
        parts = tuple(_apart(_joined(tensor), places))
        for weight, place in _column_axes(layer).items():
            variable = getattr(layer, weight)
            # On parameter servers it may lie in shards, which bear its name.
            name = plain_name(getattr(variable, "variables", [variable])[0])
            if name in axes and all(width for _, width in parts):
                axes[name][place] = Axis("columns", parts=parts)


def _column_axes(layer: tf_keras.layers.Layer) -> dict[str, int]:
    """Of a layer's weights, by name, the axis that counts its inputs."""
    if isinstance(layer, tf_keras.layers.Dense):
        return {"kernel": 0}
    return getattr(layer, "column_axes", {})


def _joined(tensor: Any) -> Iterator[tuple[str, int]]:
    """What a tensor is made of, side by side: names and widths; 0 for a width that is not known."""
    layer, inputs = tensor.node.layer, tensor.node.keras_inputs
    if isinstance(layer, tf_keras.layers.Concatenate) and tensor.shape.rank == 2:
        for before in inputs:
            yield from _joined(before)
    elif isinstance(layer, tf_keras.layers.Flatten | tf_keras.layers.Dropout):
        yield from _joined(inputs[0])
    elif times := getattr(layer, "outputs_per_input", 0):
        yield from ((name, width * times) for name, width in _joined(inputs[0]))
    else:
        yield layer.name, tensor.shape[1:].num_elements() or 0


def _apart(
    parts: Iterable[tuple[str, int]], places: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, int]]:
    """The same with the numbers of a feature one by one, where they have names."""
    for name, width in parts:
        labels = places.get(name, ())
        if labels and width % len(labels) == 0:
            yield from ((label, width // len(labels)) for label in labels)
        else:
            yield name, width


def _single_input(layer: tf_keras.layers.Layer) -> Any | None:
    """The one tensor that a layer is called with; None if there are several, or none is known."""
    calls = [node.keras_inputs for node in layer.inbound_nodes if node.keras_inputs]
    return calls[0][0] if len(calls) == 1 and len(calls[0]) == 1 else None
