"""Private parts of TensorFlow 2.21: its state, its sessions, its messages, and LiteRT's converter.

TensorFlow is imported only where it is needed.

If TensorFlow's private way of running a session has changed, the public `Session.make_callable`
replaces it. The results are the same, but each call takes three times as long.

LiteRT's public converter cannot leave operations out of the quantisation, and its debugger converts
and quantises the whole model again. If the converter's private code has changed, its int8 models
might differ, so the variant `int8` is not made.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import IO, Any

from trainer_module.compat.insides import Known, is_known, require_known

_CONTEXT = "tensorflow.python.eager.context"

logger = logging.getLogger(__name__)


def has_computed() -> bool:
    """Returns whether TensorFlow has initialised its runtime. If so, forks of the process hang.

    No public function of TensorFlow tests for the runtime without initialising it. If the
    private function is missing, the result is True: the run then starts new processes, which takes
    longer than forks.
    """
    context = sys.modules.get(_CONTEXT)
    if context is None:
        return False
    try:
        return context.context_safe() is not None
    except AttributeError:
        logger.warning("The run is slower, without forks: %s.context_safe is missing", _CONTEXT)
        return True


_IMPORT_MESSAGES = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|I\d+ .*Could not find cuda drivers on your machine, GPU will not be used\."
)


@contextmanager
def without_import_messages() -> Iterator[None]:
    """Removes the lines that the import of TensorFlow writes to standard error on every machine
    without a GPU.

    TensorFlow's C++ writes them before it reads `TF_CPP_MIN_LOG_LEVEL`, so only the file descriptor
    can be redirected. All other lines are written after the import. The import needs neither
    standard error nor a folder for temporary files, so without them no line is removed.
    """
    with ExitStack() as opened:
        held: IO[bytes] | None = None
        with suppress(OSError):
            screen = os.dup(2)
            opened.callback(os.close, screen)
            held = opened.enter_context(tempfile.TemporaryFile())
        if held is None:
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(screen, 2)
            held.seek(0)
            with suppress(OSError):  # The log may be full.
                for line in held:
                    if not _IMPORT_MESSAGES.match(line):
                        os.write(screen, line)


KNOWN: Known = {
    "tensorflow.python.client.session": {
        "BaseSession._make_callable_from_options": "ec8a014eb28f",
        "BaseSession._Callable": "3f6a590b5ce3",
    }
}
_IN_CALLER = -1
"""The value of `RunOptions.inter_op_thread_pool` that runs operations one after the other in the
calling thread."""


def make_callable(
    session: Any, feeds: Sequence[str], fetches: Sequence[str], is_parallel: bool
) -> Callable[..., list[Any]]:
    """Returns a function from the values of the `feeds` to the values of the `fetches`.

    Args:
      session: a tf.compat.v1.Session.
      feeds: the names of the input tensors, in order.
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
    """Calls `public`; turns its TypeError or ValueError into the graph's InvalidArgumentError."""
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
    "tensorflow.lite.python.convert": {"mlir_quantize": "988eae383bab"},
}
"""The functions that calibrate and that quantise."""


def calibrate(converter: Any) -> bytes:
    """Returns the model in float32 as TFLite bytes, with the calibrated ranges of its tensors.

    Args:
      converter: a tf.lite.TFLiteConverter with optimizations and a representative dataset.

    Raises:
      InternalError: the installed converter calibrates or quantises differently.
    """
    require_known(_CALIBRATION, "LiteRT's int8")
    converter._experimental_calibrate_only = True
    return bytes(converter.convert())


def quantise(calibrated: bytes, left_out: Sequence[str]) -> bytes:
    """Returns the quantised model as TFLite bytes.

    Args:
      left_out: the output names of the operations that remain in float32.
    """
    from tensorflow.lite.python.convert import mlir_quantize

    return bytes(mlir_quantize(calibrated, denylisted_nodes=[*left_out]))
