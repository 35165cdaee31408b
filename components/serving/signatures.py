"""The signatures of a SavedModel, run in a session as TensorFlow Serving runs them.

A signature that `tf.saved_model.load` gives costs a millisecond of Python and of hand-overs between
threads for each call of a small network; a session costs a third of that, and holds Python's lock
for less of it. Imports TensorFlow where it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from components.serving.servable import Arrays
from trainer_module.export.loading import with_operations

_TAGS = ["serve"]
_IN_CALLER = -1
"""Of `RunOptions.inter_op_thread_pool`: operations run one by one, in the thread that asks."""


@dataclass(frozen=True)
class _Call:
    """A signature that can be called."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Any


class Signatures:
    """The signatures of one SavedModel; may be asked by several threads at once."""

    def __init__(self, folder: Path, is_parallel: bool = False) -> None:
        """Loads the SavedModel.

        Args:
          folder: of the SavedModel.
          is_parallel: whether operations of a call that do not depend on each other run side by
            side. That pays for pictures, which are decoded one by one.

        Raises:
          Exception: as TensorFlow raises it, which is all sorts of things for damaged files.
        """
        self._session, self._signatures = with_operations(lambda: _load(folder))
        self._is_parallel = is_parallel
        self._calls: dict[str, _Call] = {}

    def outputs(self, name: str) -> dict[str, tuple[str, tuple[int | None, ...]]]:
        """The dtype and the shape of what a signature gives, by name."""
        import tensorflow as tf

        tensors = self._signatures[name].outputs
        return {
            output: (
                tf.as_dtype(tensors[output].dtype).name,
                tuple(tf.TensorShape(tensors[output].tensor_shape)),
            )
            for output in sorted(tensors)
        }

    def takes(self, name: str, *inputs: str) -> bool:
        """Whether there is a signature that takes these inputs and no others."""
        return name in self._signatures and {*self._signatures[name].inputs} == {*inputs}

    def ask(self, name: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """What a signature gives for inputs by name.

        Raises:
          tf.errors.OpError: the graph refuses them.
        """
        call = self._calls.get(name)
        if call is None:  # Of two threads that come here at once, both make it.
            call = self._calls[name] = self._make_call(name)
        found = call.run(*(inputs[name] for name in call.inputs))
        return dict(zip(call.outputs, found, strict=True))

    def _make_call(self, name: str) -> _Call:
        from tensorflow.core.protobuf import config_pb2

        signature = self._signatures[name]
        inputs, outputs = tuple(signature.inputs), tuple(sorted(signature.outputs))
        options = config_pb2.CallableOptions()
        options.feed.extend(signature.inputs[name].name for name in inputs)
        options.fetch.extend(signature.outputs[name].name for name in outputs)
        if not self._is_parallel:
            options.run_options.inter_op_thread_pool = _IN_CALLER
        # `Session.make_callable` would do, but takes three times as long a call.
        return _Call(inputs, outputs, self._session._make_callable_from_options(options))


def _load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """A session with the variables, and the signatures by name."""
    import tensorflow as tf

    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default(), _without_advice():
        meta = tf.compat.v1.saved_model.load(session, _TAGS, str(folder))
    return session, dict(meta.signature_def)


@contextmanager
def _without_advice() -> Iterator[None]:
    """TensorFlow advises `tf.saved_model.load` to whoever uses a session."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
