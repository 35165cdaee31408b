"""The Open Inference Protocol v2, as KServe and Triton speak it, with its binary extension.

https://github.com/kserve/open-inference-protocol, and for tensors as bytes behind the JSON
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from pipeline.serving.model import EXAMPLES, EXAMPLES_INPUT, RAW
from pipeline.serving.servable import Arrays, FeatureColumn
from pipeline.serving.server.errors import RequestError, unknown_name
from pipeline.serving.server.protocols.columns import from_columns
from pipeline.serving.server.protocols.tensors import DATATYPE_OF, from_tensors, to_output
from trainer_module.exported.interface import ModelInterface, RawColumn

HEADER_LENGTH = "inference-header-content-length"
"""The header that says how long the JSON is, where tensors follow it."""


def to_request(body: Any, tail: bytes, interface: ModelInterface) -> tuple[str, Arrays]:
    """What a request for `infer` asks: the signature, and its tensors.

    `check_tensors` has yet to look at the values of those of `serving_raw`.

    Args:
      body: the JSON, parsed.
      tail: the tensors that follow it.
      interface: of the model.

    Raises:
      RequestError: it is no such request.
    """
    inputs = body.get("inputs") if isinstance(body, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise RequestError("the body needs `inputs`, a list of tensors.")
    tensors = from_tensors(inputs, tail)
    if tensors.keys() == {EXAMPLES_INPUT}:
        return EXAMPLES, {EXAMPLES_INPUT: tensors[EXAMPLES_INPUT].reshape(-1)}
    return RAW, _to_columns(tensors, interface)


def _to_columns(tensors: Mapping[str, np.ndarray], interface: ModelInterface) -> Arrays:
    """Tensors by column as `serving_raw` takes them."""
    known = {column.request: column for column in interface.columns}
    for name in tensors:
        if name not in known:
            raise unknown_name("inputs", name, known)
    rows = {len(tensor) for tensor in tensors.values()}
    if len(rows) > 1:
        raise RequestError(f"the inputs have different numbers of rows: {sorted(rows)}.")
    if tensors.keys() != known.keys():
        from_columns({name: [] for name in tensors}, interface)  # Says which are missing.
    return {name: _as_column(tensors[name], column) for name, column in known.items()}


def _as_column(tensor: np.ndarray, column: RawColumn) -> np.ndarray:
    _check_shape(tensor.shape, column)
    is_text = tensor.dtype == object
    if is_text != (column.dtype == "string"):
        right = DATATYPE_OF[column.dtype]
        raise RequestError(f"input {column.request!r} is of another datatype, expected {right}.")
    if not is_text and tensor.dtype.kind != np.dtype(column.dtype).kind:
        _check_numbers(tensor, column)  # Others are looked at in the dtype that they get.
    shape = [len(tensor)] if column.width == 1 else [len(tensor), tensor.size // len(tensor)]
    return tensor.reshape(shape) if is_text else tensor.astype(column.dtype).reshape(shape)


def check_tensors(tensors: Arrays, interface: ModelInterface) -> None:
    """Looks at the values of tensors that are as `serving_raw` takes them otherwise.

    Raises:
      RequestError: a number is infinite, or not whole where it has to be.
    """
    for name, column in interface.by_request.items():
        if column.dtype != "string":
            _check_numbers(tensors[name], column)


def _check_numbers(tensor: np.ndarray, column: RawColumn) -> None:
    if tensor.dtype.kind == "f" and np.isinf(tensor).any():
        raise RequestError(f"input {column.request!r} is infinite, expected finite numbers.")
    if column.is_whole and not _are_whole(tensor):
        raise RequestError(f"input {column.request!r} holds other than whole numbers of 64 bits.")


def _check_shape(shape: tuple[int, ...], column: RawColumn) -> None:
    """Raises RequestError for a tensor that has not the column's values in each row."""
    if len(shape) > 1 and isinstance(column, FeatureColumn):
        if shape[1:] != column.shape:
            raise RequestError(
                f"`shape` of input {column.request!r} is {list(shape)}, expected"
                f" {['rows', *column.shape]}."
            )
        return
    if len(shape) > 2:
        raise RequestError(
            f"`shape` of input {column.request!r} is {list(shape)}, expected [rows] or [rows, n]."
        )
    width = shape[1] if len(shape) > 1 else 1
    if column.width is not None and width != column.width:
        raise RequestError(
            f"input {column.request!r} has {width} values a row, expected {column.width}."
        )


def _are_whole(tensor: np.ndarray) -> bool:
    """Whether all that is there is a whole number that 64 bits hold."""
    if tensor.dtype.kind != "f":
        return True
    known = tensor[~np.isnan(tensor)]
    return bool(((known == np.floor(known)) & (np.abs(known) < 2.0**63)).all())


def to_response(
    body: Mapping[str, Any], answers: Arrays, name: str, number: int
) -> tuple[bytes, int | None]:
    """The answer to `infer`, and how long its JSON is if tensors follow it.

    Raises:
      RequestError: it asks for an output that there is not.
    """
    parameters = body.get("parameters")
    default = isinstance(parameters, dict) and bool(parameters.get("binary_data_output"))
    asked = body.get("outputs") or [{"name": output} for output in answers]
    if not isinstance(asked, list):
        raise RequestError("`outputs` is no list of objects with a `name`.")
    outputs, tail = [], []
    for wanted in asked:
        title = wanted.get("name") if isinstance(wanted, dict) else None
        if not isinstance(title, str) or title not in answers:
            raise unknown_name("outputs", str(title), answers)
        own = wanted.get("parameters")
        own = own if isinstance(own, dict) else {}
        _check_parameters(title, own)
        is_binary = own.get("binary_data", default)
        output, data = to_output(title, answers[title], bool(is_binary))
        outputs.append(output)
        tail.append(data)
    head = {"model_name": name, "model_version": str(number), "outputs": outputs}
    if body.get("id") is not None:
        head["id"] = str(body["id"])
    text = orjson.dumps(head)
    has_tail = any("parameters" in output for output in outputs)
    return b"".join([text, *tail]), len(text) if has_tail else None


def _check_parameters(title: str, parameters: Mapping[str, Any]) -> None:
    """Raises RequestError for what would be answered otherwise than the client expects it."""
    for name in ("classification", "shared_memory_region"):
        if name in parameters:
            raise RequestError(f"output {title!r} has the parameter {name!r}, which is not taken.")
