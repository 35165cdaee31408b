"""The Open Inference Protocol v2, as KServe and Triton speak it, with its binary extension.

https://github.com/kserve/open-inference-protocol, and for tensors as bytes behind the JSON
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from components.serving.model import FeatureColumn
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, RAW, Arrays
from components.serving.server.protocols.tensors import DATATYPE_OF, from_tensors, to_output
from components.serving.server.protocols.values import from_columns
from components.serving.server.replies import RequestError, unknown_name
from trainer_module.errors import counted
from trainer_module.export.interface import ModelInterface, RawColumn, TextReader

HEADER_LENGTH = "inference-header-content-length"
"""The header that says how long the JSON is, where tensors follow it."""
_LONGEST_ID = 1000


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
        examples = tensors[EXAMPLES_INPUT].reshape(-1)
        if not len(examples):
            raise RequestError(f"input {EXAMPLES_INPUT!r} has no values.")
        return EXAMPLES, {EXAMPLES_INPUT: examples}
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
    reader = column.text_reader
    if reader is not None and not is_text:
        tensor, is_text = _as_texts(tensor, column.request, reader), True
    if is_text != (column.dtype == "string"):
        right = DATATYPE_OF[column.dtype]
        raise RequestError(f"input {column.request!r} is of another datatype, expected {right}.")
    if not is_text and tensor.dtype.kind != np.dtype(column.dtype).kind:
        _check_numbers(tensor, column)  # Others are looked at in the dtype that they get.
    shape = [len(tensor)] if column.width == 1 else [len(tensor), tensor.size // len(tensor)]
    return tensor.reshape(shape) if is_text else tensor.astype(column.dtype).reshape(shape)


def _as_texts(tensor: np.ndarray, name: str, reader: TextReader) -> np.ndarray:
    """Numbers, or true and false, as the texts that the model reads."""
    texts = [b"" if value != value else reader.write(value) for value in tensor.ravel().tolist()]
    if None in texts:
        value = tensor.ravel()[texts.index(None)]
        raise RequestError(f"input {name!r} holds {value}, expected {reader.right}.")
    return np.array(texts, object).reshape(tensor.shape)


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
            f"input {column.request!r} has {counted(width, 'value')} a row, expected"
            f" {column.width}."
        )


def _are_whole(tensor: np.ndarray) -> bool:
    """Whether all that is there is a whole number that 64 bits hold."""
    if tensor.dtype.kind != "f":
        return True
    known = tensor[~np.isnan(tensor)]
    return bool(((known == np.floor(known)) & (np.abs(known) < 2.0**63)).all())


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request says of its answer."""

    id: str | None
    outputs: tuple[tuple[str, bool], ...] | None
    """Names of outputs, and whether each follows the JSON as bytes; None where all are wanted."""
    are_bytes: bool
    """Whether outputs follow the JSON as bytes where none is named."""


def read_wishes(body: Mapping[str, Any]) -> Wishes:
    """What a request says of its answer.

    Raises:
      RequestError: it wants what is not done.
    """
    given, parameters, outputs = (body.get(key) for key in ("id", "parameters", "outputs"))
    if given is not None and not (isinstance(given, str | int) and len(str(given)) <= _LONGEST_ID):
        raise RequestError(f"`id` is no text of at most {_LONGEST_ID} characters.")
    default = isinstance(parameters, dict) and bool(parameters.get("binary_data_output"))
    if outputs and not isinstance(outputs, list):
        raise RequestError("`outputs` is no list of objects with a `name`.")
    wanted = dict(_read_output(one, default) for one in outputs or ())
    if outputs and len(wanted) < len(outputs):
        raise RequestError("`outputs` names one of them twice.")
    return Wishes(None if given is None else str(given), tuple(wanted.items()) or None, default)


def _read_output(wanted: Any, default: bool) -> tuple[str, bool]:
    title = wanted.get("name") if isinstance(wanted, dict) else None
    own = wanted.get("parameters") if isinstance(wanted, dict) else None
    own = own if isinstance(own, dict) else {}
    for name in ("classification", "shared_memory_region"):
        if name in own:  # It would be answered otherwise than the client expects it.
            raise RequestError(f"output {title!r} has the parameter {name!r}, which is not taken.")
    return title if isinstance(title, str) else str(title), bool(own.get("binary_data", default))


def only_wanted(answers: Arrays, wishes: Wishes) -> Arrays:
    """The outputs that a request wants, in its order.

    Raises:
      RequestError: it wants an output that there is not.
    """
    if wishes.outputs is None:
        return answers
    for title, _ in wishes.outputs:
        if title not in answers:
            raise unknown_name("outputs", title, answers)
    return {title: answers[title] for title, _ in wishes.outputs}


def to_response(
    wishes: Wishes, answers: Arrays, name: str, number: int
) -> tuple[bytes, int | None]:
    """The answer to `infer`, and how long its JSON is if tensors follow it.

    Args:
      wishes: of the request.
      answers: the outputs that it wants.
      name: of the model.
      number: of its version.
    """
    are_bytes = dict(wishes.outputs or ())
    outputs, tail = [], []
    for title, values in answers.items():
        output, data = to_output(title, values, are_bytes.get(title, wishes.are_bytes))
        outputs.append(output)
        tail.append(data)
    head = {"model_name": name, "model_version": str(number), "outputs": outputs}
    if wishes.id is not None:
        head["id"] = wishes.id
    text = orjson.dumps(head)
    has_tail = any("parameters" in output for output in outputs)
    return b"".join([text, *tail]), len(text) if has_tail else None
