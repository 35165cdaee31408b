"""The conversion to ONNX with tf2onnx, and to lower precisions with ONNX Runtime's tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
import tf2onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from tf2onnx.handler import tf_op

from components.optimizer.converting.exported import Arrays, ConvertedFile, NumericModel
from components.optimizer.converting.precision import Operation, float_operations
from trainer_module.errors import TrainingError, enumerate_names, shorten

FILE = "model.onnx"
OPSET = 18
"""The latest opset that tf2onnx supports."""
CALIBRATION_ROWS = 32
"""The number of rows in a calibration batch: all tensors of a batch have to fit into memory."""


def convert(model: NumericModel, precision: str, sample: Arrays, folder: Path) -> ConvertedFile:
    """Writes the model as an ONNX file.

    Args:
      precision: `float`; `float16`, in which inputs and outputs keep their dtypes; `int8`, in which
        layers have int8 weights with a scale per channel, and integer inputs (QDQ).

    Raises:
      TrainingError: ONNX lacks an operation of the model.
    """
    path = folder / FILE
    write_float(model, path)
    if precision == "float16":
        proto = onnx.load(path)
        excluded = float_nodes(proto, model)
        onnx.save(
            convert_float_to_float16(proto, keep_io_types=True, node_block_list=excluded), path
        )
    elif precision == "int8":
        quantize(model, sample, path, QuantType.QUInt8)
    return ConvertedFile("onnx", precision, path)


def write_float(model: NumericModel, path: Path) -> None:
    """Writes the model in float32.

    Raises:
      TrainingError: ONNX lacks an operation of the model.
    """
    specs = {
        feature.request: tf.TensorSpec([None, *feature.shape], feature.dtype, name=feature.request)
        for feature in model.interface.features
    }

    @tf.function(input_signature=[specs], autograph=False)
    def compute(tensors: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs: dict[str, tf.Tensor] = model.function(**tensors)
        return outputs

    try:
        proto, _ = tf2onnx.convert.from_function(compute, input_signature=[specs], opset=OPSET)
    except Exception as error:  # tf2onnx raises errors of any type.
        raise _conversion_error(shorten(error)) from error
    operations = {node.op_type for node in proto.graph.node if not node.domain}
    if missing := sorted(name for name in operations if not onnx.defs.has(name, OPSET, "")):
        raise _conversion_error(f"ONNX lacks the operation {enumerate_names(missing, 'and')}")
    onnx.save(proto, path)


def quantize(model: NumericModel, sample: Arrays, path: Path, activations: QuantType) -> None:
    """Quantises a float32 file in place, except for the operations of `float_operations`."""
    prepared = path.with_name("prepared.onnx")
    try:
        quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(path),
            CalibrationSample(model, sample),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=activations,
            weight_type=QuantType.QInt8,
            # CPUs without VNNI add two products of unsigned and signed bytes in 16 bits. The sum
            # cannot overflow if weights have 7 bits.
            reduce_range=activations is QuantType.QUInt8,
            nodes_to_exclude=float_nodes(onnx.load(prepared), model),
        )
    finally:
        prepared.unlink(missing_ok=True)


class CalibrationSample(CalibrationDataReader):
    """Reads the sample in batches, for ONNX Runtime's calibration."""

    def __init__(self, model: NumericModel, sample: Arrays) -> None:
        by_request = {f.request: sample[f.name] for f in model.interface.features}
        rows = len(next(iter(by_request.values())))

        def parts() -> Iterator[Arrays]:
            for begin in range(0, rows, CALIBRATION_ROWS):
                end = begin + CALIBRATION_ROWS
                yield {name: values[begin:end] for name, values in by_request.items()}

        self._parts = parts()

    def get_next(self) -> Arrays | None:
        """Returns the next batch, or None at the end of the sample."""
        return next(self._parts, None)


def float_nodes(proto: Any, model: NumericModel) -> list[str]:
    """Returns the names of the nodes that remain in float32; see `float_operations`."""
    operations = [
        Operation(node.name, node.op_type, tuple(node.input), tuple(node.output))
        for node in proto.graph.node
    ]
    outputs = [output.name for output in proto.graph.output]
    return float_operations(operations, outputs, with_last_kernel=not model.interface.classes)


def _conversion_error(reason: str) -> TrainingError:
    return TrainingError(
        f"the model cannot be converted to ONNX: {reason}. Replace the layer that causes the "
        "error, or remove the ONNX and TensorRT variants from optimize.variants; LiteRT may "
        "support the model."
    )


@tf_op("Erfc")
class _Erfc:
    """The conversion rule for Erfc, 1 - erf(x), which Keras's GELU uses; tf2onnx has no such
    rule.
    """

    @classmethod
    def version_9(cls, context: Any, node: Any, **_: Any) -> None:
        """Replaces the operation by two nodes."""
        shapes, dtypes = node.output_shapes, node.output_dtypes
        one = context.make_const(f"{node.name}_one", np.array(1, np.float32))
        erf = context.make_node("Erf", node.input)
        context.remove_node(node.name)
        context.make_node(
            "Sub",
            [one.output[0], erf.output[0]],
            name=node.name,
            outputs=node.output,
            shapes=shapes,
            dtypes=dtypes,
        )
