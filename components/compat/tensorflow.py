"""TensorFlow, as of 2.21, imported only where needed: its state, sessions, and LiteRT's converter.

`Session.make_callable` is the public way of running a session repeatedly, and is used if the
private one has changed: its results are the same, and each call takes three times as long.

LiteRT's converter supports leaving operations out only in its debugger, which converts and
quantises everything again. Ranges or operations that are chosen differently would change the model,
so that with another converter the variant `int8` is not made.
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

    The private module is looked up among the imported ones; the public way would be a function of
    TensorFlow that does not initialise the runtime. Without the known function the result is True,
    and new processes, which are slower, replace forks.
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
"""The `RunOptions.inter_op_thread_pool` with which operations run one by one, in the calling
thread."""


def make_callable(
    session: Any, feeds: Sequence[str], fetches: Sequence[str], is_parallel: bool
) -> Callable[..., list[Any]]:
    """Returns a function from the values of some tensors to those of others.

    Args:
      session: a tf.compat.v1.Session.
      feeds: the names of the input tensors, in order.
      fetches: the names of the output tensors.
      is_parallel: whether independent operations run in parallel.
    """
    from tensorflow.core.protobuf import config_pb2

    options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
    if not is_parallel:
        options.run_options.inter_op_thread_pool = _IN_CALLER
    if is_known(KNOWN, "models answer by Session.make_callable"):
        function: Callable[..., list[Any]] = session._make_callable_from_options(options)
        return function
    public = session.make_callable(list(fetches), list(feeds), accept_options=True)
    return partial(_call_public, partial(public, options=options.run_options))


def _call_public(public: Callable[..., list[Any]], *values: Any) -> list[Any]:
    """Calls the public way; turns its ValueError into the error that the graph would raise."""
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
"""The functions that calibrate without quantising, and that quantise."""


def calibrate(converter: Any) -> bytes:
    """Returns the model in float32, with the calibrated ranges of its tensors.

    Args:
      converter: a tf.lite.TFLiteConverter with optimizations and a representative dataset.

    Raises:
      InternalError: the installed converter calibrates or quantises differently.
    """
    require_known(_CALIBRATION, "LiteRT's int8")
    converter._experimental_calibrate_only = True
    return bytes(converter.convert())


def quantise(calibrated: bytes, left_out: Sequence[str]) -> bytes:
    """Returns a calibrated model in integers.

    Args:
      calibrated: the result of `calibrate`.
      left_out: the operations that stay in float32, named by their outputs.
    """
    from tensorflow.lite.python.convert import mlir_quantize

    return bytes(mlir_quantize(calibrated, denylisted_nodes=[*left_out]))
