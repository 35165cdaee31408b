"""TensorFlow 2.21: a fast way to run a session again and again.

`Session.make_callable` is the public way, and is taken where the other one has changed: it answers
the same, and takes three times as long a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from trainer_module.compat.insides import Known, is_known

KNOWN: Known = {
    "tensorflow.python.client.session": {
        "BaseSession._make_callable_from_options": "ec8a014eb28f",
        "BaseSession._Callable": "3f6a590b5ce3",
    }
}
_IN_CALLER = -1
"""Of `RunOptions.inter_op_thread_pool`: operations run one by one, in the thread that asks."""


def make_callable(
    session: Any, feeds: Sequence[str], fetches: Sequence[str], is_parallel: bool
) -> Callable[..., list[Any]]:
    """A function of the values of some tensors that gives those of others.

    Args:
      session: a tf.compat.v1.Session.
      feeds: names of the tensors that the function takes, in order.
      fetches: names of the tensors that it gives.
      is_parallel: whether operations that do not depend on each other run side by side.
    """
    from tensorflow.core.protobuf import config_pb2

    options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
    if not is_parallel:
        options.run_options.inter_op_thread_pool = _IN_CALLER
    if is_known(KNOWN, "models answer by Session.make_callable"):
        called: Callable[..., list[Any]] = session._make_callable_from_options(options)
        return called
    public = session.make_callable(list(fetches), list(feeds), accept_options=True)
    return partial(_ask, partial(public, options=options.run_options))


def _ask(public: Callable[..., list[Any]], *values: Any) -> list[Any]:
    """Calls the public way, which raises ValueError for what the graph itself would refuse."""
    import tensorflow as tf

    try:
        return public(*values)
    except (TypeError, ValueError) as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error
