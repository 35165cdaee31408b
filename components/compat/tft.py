"""Private parts of TensorFlow Transform 1.21: shared graphs, and a faster search for dependencies.

Four functions and a class are replaced, as TensorFlow Transform has no options or hooks for them.
If the replaced code has changed, `components.compat.speed` does not replace it: TensorFlow
Transform then runs its own code, and run.log reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import tensorflow as tf
from tensorflow.python.util.object_identity import ObjectIdentitySet
from tensorflow_transform import graph_tools, tf_utils
from tensorflow_transform.beam import impl

_MAX_GRAPHS = 8
"""The maximum number of graphs in the cache. A run has a few graphs for its analyses, and one graph
for the transformation."""

_NAMES = "_names_by_source"
"""The attribute of an analyzer in which its inputs are cached, by their component tensors."""


def share_transform_graphs() -> None:
    """Shares graphs between the pipeline steps of this process; repeated calls have no effect.

    TFX's Transform has a pipeline step for each span and split, and each step loads the graph in
    half a second. For a window of small spans, loading graphs takes most of the time. The function
    replaces the class in `beam.impl` by which `_RunMetaGraphDoFn` loads a graph.
    """
    step: Any = impl._RunMetaGraphDoFn
    state = step._GraphStateV2
    if not isinstance(state, type):
        return

    @lru_cache(_MAX_GRAPHS)
    def load(folder: str, inputs: frozenset[str], excluded: frozenset[str]) -> Any:
        return state(folder, set(inputs), list(excluded))

    def shared(folder: str, inputs: Iterable[str], excluded: Iterable[str]) -> Any:
        # The folder's name is a safe cache key, as each run has its own folder. Threads may share
        # the loaded graph.
        return load(str(folder), frozenset(inputs), frozenset(excluded))

    step._GraphStateV2 = staticmethod(shared)


def look_up_sources() -> None:
    """Speeds up TensorFlow Transform's search for the inputs that an analysis depends on.

    TensorFlow Transform compares each input of the graph with all others, which takes minutes for
    thousands of columns. The function replaces four functions of `graph_tools`. Repeated calls have
    no effect.
    """
    graph_tools.retrieve_sources = _retrieve_sources
    graph_tools._retrieve_source_keys = _retrieve_source_keys
    graph_tools._set_unique_value_in_dict = _set_value
    graph_tools.InitializableGraphAnalyzer.get_dependent_inputs = (
        graph_tools._reraise_unexpected_error(_get_dependent_inputs)
    )


def _retrieve_sources(
    sinks: Iterable[tf.Operation], ignore_control_dependencies: bool = False
) -> ObjectIdentitySet:
    """Returns the tensors of the placeholders that operations depend on."""
    sources = ObjectIdentitySet()
    waiting = list(sinks)
    seen = ObjectIdentitySet(waiting)
    while waiting:
        operation = waiting.pop()
        if operation.type == "Placeholder":
            sources.update(operation.outputs)
        needed = [tensor.op for tensor in operation.inputs]
        if not ignore_control_dependencies:
            needed += operation.control_inputs
        for other in needed:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return sources


def _retrieve_source_keys(tensors: Iterable[tf.Tensor], inputs: Mapping[str, Any]) -> set[str]:
    """Returns the names of the inputs that tensors depend on."""
    operations = [tensor.op for tensor in tensors]
    sources = {
        tf_utils.hashable_tensor_or_op(source)
        for source in _retrieve_sources(operations, ignore_control_dependencies=True)
    }
    return {
        name
        for name, value in inputs.items()
        if not sources.isdisjoint(
            map(tf_utils.hashable_tensor_or_op, graph_tools._decompose_tensor_or_op(value))
        )
    }


def _get_dependent_inputs(analyzer: Any, tensor: Any) -> dict[str, Any]:
    """Returns the inputs that a tensor or an operation depends on, in the order of the signature.

    TensorFlow Transform calls the function for each output. TensorFlow Transform's own function
    searches all inputs in every call; this function caches the inputs.
    """
    signature = analyzer._input_signature
    inputs = analyzer.__dict__.get(_NAMES)
    if inputs is None:
        inputs = analyzer.__dict__[_NAMES] = {
            tf_utils.hashable_tensor_or_op(part): (index, name)
            for index, (name, value) in enumerate(signature.items())
            for part in graph_tools._decompose_tensor_or_op(value)
        }
    dependencies = {
        inputs[source]
        for part in graph_tools._decompose_tensor_or_op(tensor)
        for source in analyzer._graph_analyzer.analyze_tensor(part).dependent_sources
        if source in inputs
    }
    return {name: signature[name] for _, name in sorted(dependencies)}


def _set_value(values: dict[Any, Any], key: Any, value: Any) -> None:
    """Sets a value without a search for duplicates. The values are the names of inputs, which are
    unique.
    """
    values[tf_utils.hashable_tensor_or_op(key)] = value
