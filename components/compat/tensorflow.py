"""TensorFlow, as of 2.21, imported by those who use it: whether it computes, sessions, LiteRT.

`Session.make_callable` is the public way of running a session again and again, and is taken where
the other one has changed: it answers the same, and takes three times as long a call.

LiteRT's converter leaves operations out in its debugger alone, which converts and quantises
everything once more. Ranges or operations chosen in another way would make another model, so that
another converter is refused, and the variant `int8` is not made.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from trainer_module.compat.insides import Known, is_known, require_known

_CONTEXT = "tensorflow.python.eager.context"

logger = logging.getLogger(__name__)


def has_computed() -> bool:
    """Returns whether TensorFlow has begun to compute, after which a fork of this process hangs.

    The module is private, and looked up among those that are imported; the public way would be a
    function of TensorFlow's that starts nothing by being called. Where the module has not the
    function known here, it may have: fresh processes are started, which are slower.
    """
    context = sys.modules.get(_CONTEXT)
    if context is None:
        return False
    try:
        return context.context_safe() is not None
    except AttributeError:
        logger.warning("slower, without forks: %s.context_safe is missing", _CONTEXT)
        return True


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
    """Returns a function of the values of some tensors that gives those of others.

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


_CALIBRATION: Known = {
    "tensorflow.lite.python.lite": {
        "TFLiteConverterBase._quantize": "708c2d3fb6df",
        "TFLiteConverterBase._optimize_tflite_model": "6137b7941caa",
    },
    "tensorflow.lite.python.convert": {
        "mlir_quantize": "988eae383bab",
    },
}
"""What looks at numbers without quantising, and what quantises."""


def calibrate(converter: Any) -> bytes:
    """Returns the model in float32, with the ranges that the numbers in it had.

    Args:
      converter: a tf.lite.TFLiteConverter with optimizations and a representative dataset.

    Raises:
      InternalError: the installed converter calibrates or quantises in another way.
    """
    require_known(_CALIBRATION, "LiteRT's int8")
    converter._experimental_calibrate_only = True
    return bytes(converter.convert())


def quantise(calibrated: bytes, left_out: Sequence[str]) -> bytes:
    """Returns a calibrated model in whole numbers.

    Args:
      calibrated: as `calibrate` gives it.
      left_out: the operations that stay in float32, called by what they give.
    """
    from tensorflow.lite.python.convert import mlir_quantize

    return bytes(mlir_quantize(calibrated, denylisted_nodes=[*left_out]))
