"""The weights in the checkpoint of a SavedModel, by the names of their variables.

A checkpoint of TensorFlow 2 holds the graph of the objects that were saved, under a private key; in
it are the names that variables had. The public ways know places in that graph instead
(`tf.train.list_variables`), or load the model with its code (`tf.saved_model.load`). Every version
of TensorFlow reads what is written so; where the key is missing, nothing is read.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NOT_THE_MODEL = {"optimizer", "keras_api", "signatures", "tft_layer"}
"""Under these names a SavedModel keeps what is not among the model's weights."""


def read_values(path: str) -> dict[str, np.ndarray]:
    """Returns the weights of a SavedModel by their names, without those that share one.

    Args:
      path: of the SavedModel, trained under any strategy.

    Raises:
      tf.errors.OpError: there is no checkpoint, or no graph of objects in it.
      ValueError: it is damaged.
    """
    reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    graph = TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH))
    found = list(_variables(graph))
    counts = Counter(name for name, _ in found)
    return {name: reader.get_tensor(key) for name, key in found if counts[name] == 1}


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
