"""What a model takes and gives, as each protocol tells it."""

from __future__ import annotations

from typing import Any

from components.serving.model import FeatureColumn, Servable
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, RAW
from components.serving.server.protocols.tensors import DATATYPE_OF
from trainer_module.export.interface import RawColumn

_DTYPES = {
    "string": "DT_STRING",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "int64": "DT_INT64",
}


def describe_signatures(name: str, number: int, model: Servable) -> dict[str, Any]:
    """The answer to TF Serving's question for what the signatures take."""
    raw = {
        column.request: {
            "dtype": _DTYPES[column.dtype],
            "tensor_shape": {"unknown_rank": column.width == 1, "dim": []},
            "name": column.request,
        }
        for column in model.interface.columns
    }
    examples = {
        EXAMPLES_INPUT: {
            "dtype": "DT_STRING",
            "tensor_shape": {"unknown_rank": False, "dim": [{"size": "-1", "name": ""}]},
            "name": EXAMPLES_INPUT,
        }
    }
    outputs = {
        output: {
            "dtype": _DTYPES[dtype],
            "tensor_shape": {
                "unknown_rank": False,
                "dim": [{"size": str(size or -1), "name": ""} for size in shape],
            },
            "name": output,
        }
        for output, (dtype, shape) in model.outputs.items()
    }
    method = "tensorflow/serving/predict"
    asked = {RAW: raw, EXAMPLES: examples} if model.takes_examples else {RAW: raw}
    signatures = {
        title: {"inputs": inputs, "outputs": outputs, "method_name": method}
        for title, inputs in asked.items()
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(number)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def describe_tensors(name: str, number: int, model: Servable) -> dict[str, Any]:
    """The answer to Open Inference's question for what a model takes."""
    return {
        "name": name,
        "versions": [str(number)],
        "platform": model.platform,
        "inputs": [
            {
                "name": column.request,
                "datatype": DATATYPE_OF[column.dtype],
                "shape": _described_shape(column),
            }
            for column in model.interface.columns
        ],
        "outputs": [
            {
                "name": output,
                "datatype": DATATYPE_OF[dtype],
                "shape": [-1 if size is None else size for size in shape],
            }
            for output, (dtype, shape) in model.outputs.items()
        ],
    }


def _described_shape(column: RawColumn) -> list[int]:
    if isinstance(column, FeatureColumn):
        return [-1, *column.shape]
    return [-1] if column.width == 1 else [-1, column.width or -1]
