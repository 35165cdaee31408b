"""The conversion to LiteRT, for batches of any size; inputs and outputs keep their dtypes."""

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

_KINDS = {
    number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)
}


def convert(model: NumericModel, precision: str, sample: Arrays, folder: Path) -> ConvertedFile:
    """Writes the model as a LiteRT file.

    Args:
      model: the model.
      precision: float; float16 or dynamic, with weights in float16 or int8; int8 or int16x8, with
        layers' outputs in int8 or int16, too.
      sample: transformed examples, by which the ranges of int8 and int16 are calibrated.
      folder: the folder for the file.

    Raises:
      TrainingError: LiteRT lacks an operation of the model, which the message names; or the
        installed converter makes int8 differently.
    """
    try:
        converter = _converter(model, precision, sample)
        content = converter.convert() if precision != "int8" else _in_int8(converter, model)
    except InternalError as error:
        raise TrainingError(str(error)) from error
    except Exception as error:  # MLIR raises plain exceptions.
        raise _refusal(error, precision) from error
    (folder / FILE).write_bytes(_in_order(content, [output.tensor for output in model.outputs]))
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
            # Operations without such a form, such as table look-ups, stay in float32.
            converter.target_spec.supported_ops = [integers, operations.TFLITE_BUILTINS]
    return converter


def _in_int8(converter: tf.lite.TFLiteConverter, model: NumericModel) -> bytes:
    """Returns the model in int8, except for the operations of `float_operations`.

    Raises:
      InternalError: the installed converter quantises differently.
    """
    calibrated = calibrate(converter)
    operations, outputs = _read_graph(calibrated)
    nodes = float_operations(operations, outputs, with_last_kernel=not model.interface.classes)
    return quantise(calibrated, nodes)


def _in_order(content: bytes, names: Sequence[str]) -> bytes:
    """Returns the file with its outputs in the given order; the converter sorts them by name.

    Args:
      content: the file's content.
      names: all outputs of the only signature.
    """
    changed = bytearray(content)
    model = schema.Model.GetRootAs(changed, 0)
    signature = schema.ModelT.InitFromObj(model).signatureDefs[0]
    places = {output.name.decode(): output.tensorIndex for output in signature.outputs}
    model.Subgraphs(0).OutputsAsNumpy()[:] = [places[name] for name in names]
    return bytes(changed)


def _read_graph(content: bytes) -> tuple[list[Operation], list[str]]:
    """Returns the operations of a file, named by their outputs, and the names of the file's
    outputs.
    """
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    names = [tensor.name.decode() for tensor in graph.tensors]

    def kind(code: Any) -> str:
        return _KINDS[max(code.builtinCode, code.deprecatedBuiltinCode)]

    operations = [
        Operation(
            names[found.outputs[0]],
            kind(model.operatorCodes[found.opcodeIndex]),
            tuple(names[place] for place in found.inputs if place >= 0),
            tuple(names[place] for place in found.outputs),
        )
        for found in graph.operators
    ]
    return operations, [names[place] for place in graph.outputs]


def _refusal(error: Exception, precision: str) -> TrainingError:
    """Returns the error for LiteRT's message, which names the operations that LiteRT lacks."""
    said = str(error)
    lacking = set(re.findall(r"'tf\.(\w+)' op is neither|(?:Flex|Custom) ops: ([\w, ]+)", said))
    names = sorted({name for pair in lacking for name in pair if name})
    ways = (
        f"replace the layer that needs it, or remove {precision} from optimize.variants; ONNX may "
        "support the model"
    )
    if names:
        return TrainingError(f"LiteRT has no operation {enumerate_names(names, 'and')}: {ways}.")
    if found := re.search(r"Empty min/max for tensor serving_default_(\w+):0", said):
        return TrainingError(
            f"LiteRT cannot quantise operations on the integers of the feature {found[1]!r} to "
            f"{precision}: use int8 instead."
        )
    reason = shorten(said) or "its converter gives no reason"
    return TrainingError(f"LiteRT cannot convert the model ({reason}): {ways}.")
