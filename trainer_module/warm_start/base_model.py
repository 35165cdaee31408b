"""Reads the weights of an exported model without loading it: no code or graph of it is needed."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from trainer_module.errors import TrainingError
from trainer_module.warm_start.description import Description, read_description

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NOT_THE_MODEL = {"optimizer", "keras_api", "signatures", "tft_layer"}
"""Under these names a SavedModel keeps what is not among the model's weights."""

READING_ERRORS = (tf.errors.OpError, ValueError, KeyError)
"""What reading a model that is missing or damaged raises."""


@dataclass(frozen=True)
class BaseModel:
    """The model that training goes on from."""

    path: str
    description: Description | None
    """What it says of itself; None if it is an older one, or someone else's."""
    values: dict[str, np.ndarray]
    """Its weights by their names."""


def read_base_model(path: str) -> BaseModel:
    """Reads a SavedModel's checkpoint, whatever the strategy that it was trained under.

    Raises:
      TrainingError: the model, or a part of it, cannot be read.
    """
    try:
        description = read_description(path)
        values = read_values(path)
    except READING_ERRORS as error:
        raise TrainingError(
            f"warm start: the model at {path} cannot be read: {told(error)}; put it back, or set "
            "schedule.warm_start: false to train from scratch."
        ) from error
    return BaseModel(path, description, values)


def read_values(path: str) -> dict[str, np.ndarray]:
    """The weights of a SavedModel by their names; what it raises are `READING_ERRORS`."""
    reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    keys = _weight_keys(TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH)))
    return {name: reader.get_tensor(key) for name, key in keys.items()}


def _weight_keys(graph: TrackableObjectGraph) -> dict[str, str]:
    """By the weights' names, their keys; weights that share a name cannot be told apart."""
    found = list(_variables(graph))
    counts = Counter(name for name, _ in found)
    return {name: key for name, key in found if counts[name] == 1}


def _variables(graph: TrackableObjectGraph) -> Iterator[tuple[str, str]]:
    """Names and keys of all variables that belong to the model itself."""
    waiting, seen = deque([0]), {0}
    while waiting:
        node = graph.nodes[waiting.popleft()]
        for attribute in node.attributes:
            if attribute.full_name:
                yield attribute.full_name, attribute.checkpoint_key
        for child in node.children:
            if child.local_name not in _NOT_THE_MODEL and child.node_id not in seen:
                seen.add(child.node_id)
                waiting.append(child.node_id)


def told(error: Exception) -> str:
    """What an error says, in one line without its full stop."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    return " ".join(message.split()).rstrip(".")
