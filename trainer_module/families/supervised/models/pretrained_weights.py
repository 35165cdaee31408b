"""Loads the weights in a file into the layers of a network."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tensorflow as tf
import tf_keras

from trainer_module.base_model import READING_ERRORS, Weight, error_line, plain_name
from trainer_module.compat.keras import read_values
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.models.weight_formats import (
    HDF5,
    WEIGHTS_IN_KERAS,
    check_format,
)
from trainer_module.scratch import ScratchFolder
from trainer_module.settings.model import IMAGENET_DEVIATIONS


@contextmanager
def open_weights(path: str) -> Iterator[h5py.Group]:
    """Yields the HDF5 file at a path or URI, or the HDF5 file in the .keras archive at the path.

    Raises:
      TrainingError: the file is missing, damaged, a pickle, or has another format.
    """
    with _local_copy(path) as file, _open_content(file, path) as content:
        try:
            opened = h5py.File(content, "r")
        except OSError as error:
            raise TrainingError(
                f"model.weights: {path} is damaged: {_hdf5_reason(error)}; download the file again."
            ) from error
        with opened:
            yield opened


@contextmanager
def _local_copy(path: str) -> Iterator[Path]:
    if "://" not in path:
        yield Path(path)
        return
    with ScratchFolder() as scratch:
        copy = Path(scratch) / "weights"
        try:
            tf.io.gfile.copy(path, str(copy))
        except tf.errors.OpError as error:
            raise TrainingError(f"model.weights: {path} cannot be read: {error.message}") from error
        yield copy


@contextmanager
def _open_content(file: Path, path: str) -> Iterator[Any]:
    """Yields the file, or the content of the HDF5 file in an archive."""
    if check_format(file, path) == HDF5:
        yield file
        return
    with zipfile.ZipFile(file) as archive:
        yield io.BytesIO(archive.read(WEIGHTS_IN_KERAS))


def _hdf5_reason(error: Exception) -> str:
    """Returns the reason in an HDF5 error, without the failed operation."""
    text = str(error)
    return text[text.find("(") + 1 : -1] if text.endswith(")") and "(" in text else text


StoredWeights = Mapping[str, Sequence[Any]]
"""The arrays of each layer, in order: NumPy arrays, or datasets in an open file."""

MAX_NAMED_LAYERS = 3
"""The maximum number of layers in a message."""


def load_weights(network: tf_keras.Model, kind: str, path: str) -> None:
    """Assigns the weights in a file, or in an exported model's folder, to a network.

    Call the function in the scope of the strategy. The file may also contain the network's top.

    Args:
      network: the network without its top.
      kind: the kind of the model, for messages.
      path: the path of the file or folder.

    Raises:
      TrainingError: the file cannot be read, or its weights belong to another network.
    """
    layers = _layers(network)
    if tf.io.gfile.isdir(path):
        _assign(layers, _exported_weights(layers, path), kind, path)
    else:
        try:
            with open_weights(path) as file:
                is_numbered = "layers" in file  # Keras 2.13 introduced this layout.
                stored = (
                    _weights_by_position(network, file)
                    if is_numbered
                    else _weights_by_name(layers, file)
                )
                stored = _rename_by_order(layers, stored)
                _assign(layers, stored, kind, path)
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            raise TrainingError(
                f"model.weights: {path} is damaged: {error_line(error)}; download the file again."
            ) from error
    _finish_scaling(network)


def _layers(network: tf_keras.Model) -> dict[str, list[Weight]]:
    """Returns the weights of each layer that has weights, in the order of the layers."""
    layers: dict[str, list[Weight]] = {}
    for layer in network.layers:
        weights: dict[str, Weight] = {}
        for variable in layer.weights:
            name = plain_name(variable)
            weights.setdefault(name, Weight(name)).variables.append(variable)
        if weights:
            layers[_layer_name(layer.name)] = list(weights.values())
    return layers


def _layer_name(layer: str) -> str:
    """Returns the name of a layer without the number that Keras adds to an unnamed layer."""
    return re.sub(r"^normalization_\d+$", "normalization", layer)


def _exported_weights(layers: Mapping[str, list[Weight]], path: str) -> StoredWeights:
    """Returns the weights of a model that Scopeline has exported, by their names."""
    if not tf.io.gfile.exists(os.path.join(path, "saved_model.pb")):
        raise TrainingError(
            f"model.weights: {path} is a folder without a saved_model.pb; use the folder of an "
            "exported model, such as a version below output/NAME/serving/NAME, or a file."
        )
    try:
        values = read_values(path)
    except READING_ERRORS as error:
        raise TrainingError(
            f"model.weights: the model at {path} cannot be read: {error_line(error)}."
        ) from error
    by_path = {_weight_path(name): value for name, value in values.items()}
    paths = {layer: [_weight_path(w.name) for w in weights] for layer, weights in layers.items()}
    return {layer: [by_path[p] for p in own if p in by_path] for layer, own in paths.items()}


def _weight_path(weight: str) -> str:
    layer, slash, name = weight.rpartition("/")
    return f"{_layer_name(layer)}{slash}{name}"


def _weights_by_name(layers: Mapping[str, list[Weight]], file: h5py.Group) -> StoredWeights:
    """Returns the weights of a file in Keras's older layout, by the names of the layers.

    The network may be nested in the model of the file.
    """
    root = file.get("model_weights", file)
    stored: dict[str, list[Any]] = {}
    for group in _names(root, "layer_names"):
        for name in _names(root[group], "weight_names"):
            nested = _layer_name(name.rpartition("/")[0])
            outer = _layer_name(group)
            layer = nested if outer not in layers and nested in layers else outer
            stored.setdefault(layer, []).append(root[group][name])
    return stored


def _names(group: h5py.Group, key: str) -> Iterator[str]:
    """Yields the names in an attribute; Keras splits long lists into numbered attributes."""
    parts = [key] if key in group.attrs else []
    while (part := f"{key}{len(parts)}") in group.attrs:
        parts.append(part)
    for part in parts:
        for name in group.attrs[part]:
            yield name.decode() if isinstance(name, bytes) else str(name)


def _weights_by_position(network: tf_keras.Model, file: h5py.Group) -> StoredWeights:
    """Returns the weights of a file in Keras's newer layout, by the names of the network's layers.

    In this layout, `conv2d_3` is the fourth layer of its kind.
    """
    counts: Counter[str] = Counter()
    names = {}
    for layer in network.layers:
        kind = _snake_case(type(layer).__name__)
        names[f"{kind}_{counts[kind]}" if counts[kind] else kind] = _layer_name(layer.name)
        counts[kind] += 1
    root = _best_match(file["layers"], names)
    return {
        names.get(name, name): [group["vars"][str(i)] for i in range(len(group["vars"]))]
        for name, group in root.items()
        if len(group.get("vars", ()))
    }


def _best_match(layers: h5py.Group, names: Iterable[str]) -> h5py.Group:
    """Returns the group of layers with the most matching names: the file's, or a nested model's."""
    candidates = [layers, *(group["layers"] for group in layers.values() if "layers" in group)]
    return max(candidates, key=lambda group: len(set(names) & set(group)))


def _snake_case(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _assign(
    layers: Mapping[str, list[Weight]], stored: StoredWeights, kind: str, path: str
) -> None:
    mismatches = [*_mismatches(layers, stored)]
    if mismatches:
        more = (
            f", and {len(mismatches) - MAX_NAMED_LAYERS} more"
            if len(mismatches) > MAX_NAMED_LAYERS
            else ""
        )
        raise TrainingError(
            f"model.weights: {path} holds the weights of another network than {kind}: "
            f"{'; '.join(mismatches[:MAX_NAMED_LAYERS])}{more}. Use a file of {kind}, or change "
            "model.kind to the network of the file."
        )
    for layer, weights in layers.items():
        for weight, value in zip(weights, stored[layer], strict=True):
            weight.assign(np.asarray(value))


def _rename_by_order(layers: Mapping[str, list[Weight]], stored: StoredWeights) -> StoredWeights:
    """Returns the stored weights, renamed to the network's layers if they match only by order.

    Other versions of Keras may have given the layers other names.
    """
    extra = [*stored.items()][len(layers) :]
    by_order = {**dict(zip(layers, stored.values(), strict=False)), **dict(extra)}
    match_only_by_order = any(_mismatches(layers, stored)) and not any(
        _mismatches(layers, by_order)
    )
    return by_order if match_only_by_order else stored


def _mismatches(layers: Mapping[str, list[Weight]], stored: StoredWeights) -> Iterator[str]:
    """Yields a message for each layer whose stored weights are missing or have other shapes."""
    for layer, weights in layers.items():
        expected, actual = ([tuple(x.shape) for x in xs] for xs in (weights, stored.get(layer, [])))
        if not actual:
            yield f"the file has no layer {layer}"
        elif actual != expected:
            shapes = f"{_format_shapes(actual)}, not {_format_shapes(expected)}"
            yield f"layer {layer} has the shapes {shapes}"
    for layer, values in stored.items():
        # The convolutions of a network's top have kernels of size 1; the top is ignored.
        if layer not in layers and any(len(v.shape) == 4 and v.shape[0] > 1 for v in values):
            yield f"the network has no layer {layer}"


def _format_shapes(shapes: Iterable[tuple[int, ...]]) -> str:
    return " ".join("x".join(map(str, shape)) or "()" for shape in shapes)


def _finish_scaling(network: tf_keras.Model) -> None:
    """Applies the loaded means and variances of EfficientNet, which Keras stores as constants.

    Keras's published files contain standard deviations instead of variances; Keras's own network
    divides a second time: https://github.com/tensorflow/tensorflow/issues/49930.
    """
    for layer in network.layers:
        if isinstance(layer, tf_keras.layers.Normalization):
            variance = np.asarray(layer.adapt_variance)
            if np.allclose(variance, IMAGENET_DEVIATIONS, atol=1e-3):
                layer.adapt_variance.assign(np.square(variance))
            layer.finalize_state()
