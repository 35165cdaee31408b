"""The conversion to LiteRT, for batches of any size.

Inputs and outputs keep their dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from components.compat.tensorflow import calibrate, quantise
from components.optimizer.converting.exported import Arrays, ConvertedFile, NumericModel
from components.optimizer.converting.precision import Operation, float_operations
from trainer_module.errors import InternalError, TrainingError, enumerate_names, shorten

FILE = "model.tflite"

_OPERATOR_NAMES = {
    number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)
}


def convert(model: NumericModel, precision: str, sample: Arrays, folder: Path) -> ConvertedFile:
    """Writes the model as a LiteRT file.

    Args:
      precision: `float`; `float16` or `dynamic`, with weights in float16 or int8; `int8` or
        `int16x8`, with int8 weights, and with the outputs of layers in int8 or int16.

    Raises:
      TrainingError: LiteRT lacks an operation of the model, or the installed converter quantises
        differently from the version that this project supports.
    """
    try:
        converter = _converter(model, precision, sample)
        content = converter.convert() if precision != "int8" else _convert_to_int8(converter, model)
    except InternalError as error:
        raise TrainingError(str(error)) from error
    except Exception as error:  # MLIR raises plain exceptions.
        raise _conversion_error(error, precision) from error
    (folder / FILE).write_bytes(
        _reorder_outputs(content, [output.tensor for output in model.outputs])
    )
    return ConvertedFile("litert", precision, folder / FILE)


def _converter(model: NumericModel, precision: str, sample: Arrays) -> tf.lite.TFLiteConverter:
    converter = tf.lite.TFLiteConverter.from_concrete_functions([model.function], model.trackable)
    if precision == "float":
        return converter
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    elif precision in ("int8", "int16x8"):
        requests = [(f.request, sample[f.name]) for f in model.interface.features]

        def examples() -> Iterator[Arrays]:
            for row in range(len(requests[0][1])):
                yield {name: values[row : row + 1] for name, values in requests}

        converter.representative_dataset = examples
        operations = tf.lite.OpsSet
        integers = operations.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        if precision == "int16x8":
            # Operations without an int16 version, such as table look-ups, remain in float32.
            converter.target_spec.supported_ops = [integers, operations.TFLITE_BUILTINS]
    return converter


def _convert_to_int8(converter: tf.lite.TFLiteConverter, model: NumericModel) -> bytes:
    """Converts the model to int8, except for the operations of `float_operations`.

    Raises:
      InternalError: the installed converter differs from the version that this project supports.
    """
    calibrated = calibrate(converter)
    operations, outputs = _read_graph(calibrated)
    nodes = float_operations(operations, outputs, with_last_kernel=not model.interface.classes)
    return quantise(calibrated, nodes)


def _reorder_outputs(content: bytes, names: Sequence[str]) -> bytes:
    """Returns a file with its outputs in a given order. The converter sorts outputs by name."""
    changed = bytearray(content)
    model = schema.Model.GetRootAs(changed, 0)
    signature = schema.ModelT.InitFromObj(model).signatureDefs[0]
    indices = {output.name.decode(): output.tensorIndex for output in signature.outputs}
    model.Subgraphs(0).OutputsAsNumpy()[:] = [indices[name] for name in names]
    return bytes(changed)


def _read_graph(content: bytes) -> tuple[list[Operation], list[str]]:
    """Returns the operations of a file, and the names of its outputs.

    The name of an operation is the name of its first output.
    """
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    names = [tensor.name.decode() for tensor in graph.tensors]

    def kind_of(code: Any) -> str:
        return _OPERATOR_NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]

    operations = [
        Operation(
            names[operator.outputs[0]],
            kind_of(model.operatorCodes[operator.opcodeIndex]),
            tuple(names[index] for index in operator.inputs if index >= 0),
            tuple(names[index] for index in operator.outputs),
        )
        for operator in graph.operators
    ]
    return operations, [names[index] for index in graph.outputs]


def _conversion_error(error: Exception, precision: str) -> TrainingError:
    """Returns the error for a failed conversion, with the operations that LiteRT lacks."""
    message = str(error)
    matches = set(re.findall(r"'tf\.(\w+)' op is neither|(?:Flex|Custom) ops: ([\w, ]+)", message))
    names = sorted({name for pair in matches for name in pair if name})
    remedies = (
        f"replace the layer that causes the error, or remove {precision} from optimize.variants; "
        "ONNX may support the model"
    )
    if names:
        return TrainingError(
            f"LiteRT has no operation {enumerate_names(names, 'and')}: {remedies}."
        )
    if match := re.search(r"Empty min/max for tensor serving_default_(\w+):0", message):
        return TrainingError(
            f"LiteRT cannot quantise operations on the integers of the feature {match[1]!r} to "
            f"{precision}: use int8 instead."
        )
    reason = shorten(message) or "the converter gives no reason"
    return TrainingError(f"LiteRT cannot convert the model ({reason}): {remedies}.")
