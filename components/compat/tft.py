"""TensorFlow Transform, as of 1.21: shared graphs, and a faster lookup of dependencies.

Functions and a class of its modules are replaced, as there is no option or hook for any of them;
the public way would be a release that is as fast. `components.compat.speed` replaces nothing if the
code is not the known one: TensorFlow Transform then works in its own way, and run.log reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import tensorflow as tf
from tensorflow.python.util.object_identity import ObjectIdentitySet
from tensorflow_transform import graph_tools, tf_utils
from tensorflow_transform.beam import impl

_MOST_GRAPHS = 8
"""The most graphs in the cache: a run has one or a few for its analyses, and one for the
transformation."""

_NAMES = "_names_by_source"
"""The attribute of an analyzer that caches its inputs by their component tensors."""


def share_transform_graphs() -> None:
    """Shares graphs between the pipeline steps of this process; repeated calls have no effect.

    TFX's Transform has a pipeline step per span and split, each of which loads the graph: half a
    second each, which is most of the time for a window of small spans. The replaced object is the
    class in `beam.impl` by which `_RunMetaGraphDoFn` loads a graph.
    """
    step: Any = impl._RunMetaGraphDoFn
    state = step._GraphStateV2
    if not isinstance(state, type):
        return

    @lru_cache(_MOST_GRAPHS)
    def load(folder: str, inputs: frozenset[str], excluded: frozenset[str]) -> Any:
        return state(folder, set(inputs), list(excluded))

    def shared(folder: str, inputs: Iterable[str], excluded: Iterable[str]) -> Any:
        # Each run's folder has its own name, and threads may share the loaded graph.
        return load(str(folder), frozenset(inputs), frozenset(excluded))

    step._GraphStateV2 = staticmethod(shared)


def look_up_sources() -> None:
    """Speeds up TensorFlow Transform's search for the inputs that an analysis depends on.

    It compares each input of the graph with all others, which takes minutes for thousands of
    columns. Four functions in `graph_tools` are replaced. Repeated calls have no effect.
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
    found = _retrieve_sources([tensor.op for tensor in tensors], ignore_control_dependencies=True)
    sources = {tf_utils.hashable_tensor_or_op(source) for source in found}
    return {
        name
        for name, value in inputs.items()
        if not sources.isdisjoint(
            map(tf_utils.hashable_tensor_or_op, graph_tools._decompose_tensor_or_op(value))
        )
    }


def _get_dependent_inputs(analyzer: Any, tensor: Any) -> dict[str, Any]:
    """Returns the inputs that a tensor or an operation depends on, in order.

    TensorFlow Transform calls this for each output, and its own function searches all inputs.
    """
    signature = analyzer._input_signature
    known = analyzer.__dict__.get(_NAMES)
    if known is None:
        known = analyzer.__dict__[_NAMES] = {
            tf_utils.hashable_tensor_or_op(part): (place, name)
            for place, (name, value) in enumerate(signature.items())
            for part in graph_tools._decompose_tensor_or_op(value)
        }
    found = {
        known[source]
        for part in graph_tools._decompose_tensor_or_op(tensor)
        for source in analyzer._graph_analyzer.analyze_tensor(part).dependent_sources
        if source in known
    }
    return {name: signature[name] for _, name in sorted(found)}


def _set_value(values: dict[Any, Any], key: Any, value: Any) -> None:
    """Sets a value without a search for duplicates, as values are named after the unique inputs."""
    values[tf_utils.hashable_tensor_or_op(key)] = value
