"""LiteRT's converter in TensorFlow, as of 2.21: calibration by itself, then quantisation.

The converter's public interface leaves operations out in its debugger alone, which converts and
quantises everything once more. Ranges or operations chosen in another way would make another
model, so that another converter is refused, and the variant `int8` is not made.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.lite.python.convert import mlir_quantize

from trainer_module.compat.insides import Known, require_known

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


def calibrate(converter: tf.lite.TFLiteConverter) -> bytes:
    """The model in float32, with the ranges that the numbers in it had.

    Args:
      converter: with optimizations and a representative dataset.

    Raises:
      InternalError: the installed converter calibrates or quantises in another way.
    """
    require_known(_CALIBRATION, "LiteRT's int8")
    converter._experimental_calibrate_only = True
    return bytes(converter.convert())


def quantise(calibrated: bytes, left_out: Sequence[str]) -> bytes:
    """A calibrated model in whole numbers.

    Args:
      calibrated: as `calibrate` gives it.
      left_out: the operations that stay in float32, called by what they give.
    """
    return bytes(mlir_quantize(calibrated, denylisted_nodes=[*left_out]))
