"""TF Serving's REST API: parsing of requests, and serialisation of responses.

https://www.tensorflow.org/tfx/serving/api_rest
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from components.serving.model import Servable
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, RAW
from components.serving.server.protocols.values import (
    RequestInputs,
    Rows,
    by_request_names,
    decode_base64,
    from_columns,
)
from components.serving.server.replies import (
    Reply,
    RequestError,
    ResponseFormat,
    ResultSlice,
    read_top_k,
    unknown_name,
)
from components.serving.top_classes import CLASSES, SCORES
from trainer_module.export.interface import ModelInterface

_MAX_CONTEXT_CHARS = 64 << 20
"""The most characters of a request's `context`, multiplied by the number of rows."""
_ERROR = {"error_code": "OK", "error_message": ""}


def read_request(
    verb: str, body: Any, interface: ModelInterface
) -> tuple[str, RequestInputs, ResponseFormat]:
    """Returns the signature of a request, its inputs, and the format of the response.

    A `:predict` request without a signature name may contain tf.Examples, as in TF Serving, or
    columns.

    Args:
      verb: predict, classify or regress.

    Raises:
      RequestError: the request is invalid.
    """
    if verb == "regress":
        return RAW, _to_rows(body, interface), _NUMBERS
    if verb == "classify":
        examples = _to_rows(body, interface)
        return RAW, examples, _ClassesFormat(read_top_k(body.get("top_k")))
    if not isinstance(body, dict):
        raise RequestError('the body is not an object, expected {"instances": [...]}.')
    rows, columns = body.get("instances"), body.get("inputs")
    if ("instances" in body) == ("inputs" in body):
        raise RequestError("the body needs either `instances` with rows, or `inputs` with columns.")
    signature = _read_signature(body)
    if rows is not None and not isinstance(rows, list):
        raise RequestError("`instances` is not a list: give a list with one value per row.")
    top_k = read_top_k(body.get("top_k"))
    response_format: ResponseFormat = _ColumnsFormat(top_k) if rows is None else _RowsFormat(top_k)
    if signature == EXAMPLES or (not signature and _are_examples(rows, columns)):
        return EXAMPLES, {EXAMPLES_INPUT: _decode_examples(rows, columns)}, response_format
    if rows is not None:
        return RAW, _check_not_empty(rows, "instances"), response_format
    names = [column.request for column in interface.columns]
    if not isinstance(columns, dict):
        if len(names) != 1:
            raise RequestError("`inputs` is not an object: give a list of values per column.")
        columns = {names[0]: columns}
    checked = from_columns(columns, interface)
    if not next(iter(checked.values())):
        raise RequestError("`inputs` has no rows: give at least one row.")
    return RAW, checked, response_format


def _read_signature(body: Mapping[str, Any]) -> str:
    """Returns the name of the signature in a request, or an empty string if it has no name."""
    signature = body.get("signature_name", "")
    if signature not in ("", RAW, EXAMPLES):
        raise RequestError(f"there is no signature {signature!r}, expected {RAW} or {EXAMPLES}.")
    return str(signature)


def _check_not_empty(rows: Rows, key: str) -> Rows:
    if not rows:
        raise RequestError(f"`{key}` is empty: give an object per row.")
    return rows


def _are_examples(rows: Rows | None, columns: Any) -> bool:
    if rows is None:
        return isinstance(columns, dict) and columns.keys() == {EXAMPLES_INPUT}
    first = rows[0] if rows else None
    return isinstance(first, dict) and first.keys() in ({EXAMPLES_INPUT}, {"b64"})


def _decode_examples(rows: Rows | None, columns: Any) -> np.ndarray:
    """Returns the serialised tf.Examples of a request with `instances` or with `inputs`."""
    if rows is None:
        rows = columns.get(EXAMPLES_INPUT) if isinstance(columns, dict) else columns
    if not isinstance(rows, list) or not rows:
        raise RequestError(f"`{EXAMPLES_INPUT}` is not a list of serialised tf.Examples.")
    examples = []
    for index, row in enumerate(rows):
        value = row.get(EXAMPLES_INPUT, row) if isinstance(row, dict) else row
        if not isinstance(value, dict) or value.keys() != {"b64"}:
            raise RequestError(
                f'instances[{index}] is not a serialised tf.Example, expected {{"b64": "..."}}, or'
                f' "signature_name": "{RAW}" with a key per column.'
            )
        examples.append(decode_base64(value["b64"], f"instances[{index}]"))
    return np.array(examples, object)


def _to_rows(body: Any, interface: ModelInterface) -> Rows:
    """Returns the rows of a `:classify` or `:regress` request, as inputs of `serving_raw`."""
    if not isinstance(body, dict) or not isinstance(body.get("examples"), list):
        raise RequestError('the body needs `examples`: {"examples": [{"column": value}, ...]}.')
    _read_signature(body)
    context, rows = body.get("context", {}), body["examples"]
    if not isinstance(context, dict):
        raise RequestError("`context` is not an object: give the columns that all rows share.")
    context = by_request_names(context, interface, "context")
    for name in context:
        if name not in interface.by_request:
            raise unknown_name("context", name, interface.by_request)
    # The tensors contain a copy of the context's values for each row.
    if context and len(json.dumps(context)) * len(rows) > _MAX_CONTEXT_CHARS:
        raise RequestError(
            "`context` is too large for this number of rows: send fewer rows per request.", 413
        )
    if context:
        rows = [
            {**context, **by_request_names(row, interface, f"examples[{i}]")}
            if isinstance(row, dict)
            else row
            for i, row in enumerate(rows)
        ]
    return _check_not_empty(rows, "examples")


@dataclass(frozen=True, slots=True)
class _RowsFormat:
    """The response to a `:predict` request with `instances`: the outputs by row."""

    top_k: int | None

    def part(self, output: ResultSlice) -> bytes:
        return b",".join(output.top(self.top_k).row_texts)

    def reply(self, parts: Sequence[bytes]) -> Reply:
        return Reply(b'{"predictions":[%b]}' % b",".join(parts))


@dataclass(frozen=True, slots=True)
class _ColumnsFormat:
    """The response to a `:predict` request with `inputs`: the outputs by column.

    If the model has only one output, the response contains its values without its name.
    """

    top_k: int | None

    def part(self, output: ResultSlice) -> dict[str, bytes]:
        columns = output.top(self.top_k).column_texts
        return {name: b",".join(texts) for name, texts in columns.items()}

    def reply(self, parts: Sequence[dict[str, bytes]]) -> Reply:
        lists = {n: b"[%b]" % b",".join([part[n] for part in parts]) for n in parts[0]}
        if len(lists) == 1:
            return Reply(b'{"outputs":%b}' % next(iter(lists.values())))
        members = [b"%b:%b" % (orjson.dumps(name), texts) for name, texts in lists.items()]
        return Reply(b'{"outputs":{%b}}' % b",".join(members))


class _NumbersFormat:
    """The response to a `:regress` request: a number per row."""

    def part(self, output: ResultSlice) -> bytes:
        if "value" not in output.batch.arrays:
            raise RequestError("the model predicts a class: use :classify or :predict.")
        return b",".join(output.column_texts["value"])

    def reply(self, parts: Sequence[bytes]) -> Reply:
        return Reply(b'{"results":[%b]}' % b",".join(parts))


@dataclass(frozen=True, slots=True)
class _ClassesFormat(_NumbersFormat):
    """The response to a `:classify` request: for each row, pairs of a class and its score."""

    top_k: int | None

    def part(self, output: ResultSlice) -> bytes:
        if not {CLASSES, SCORES} <= output.batch.arrays.keys():
            raise RequestError("the model predicts a number: use :regress or :predict.")
        columns = output.top(self.top_k).column_texts
        rows = zip(*(columns[name] for name in (CLASSES, SCORES)), strict=True)
        return b",".join(orjson.dumps([*zip(*map(orjson.loads, row), strict=True)]) for row in rows)


_NUMBERS = _NumbersFormat()


def to_status(states: Sequence[tuple[int, str, str]]) -> dict[str, Any]:
    """Returns the response to a status request: number, state and error of each version."""
    return {
        "model_version_status": [
            {
                "version": str(number),
                "state": state,
                "status": {"error_code": "UNKNOWN", "error_message": message}
                if message
                else _ERROR,
            }
            for number, state, message in states
        ]
    }


_DTYPES = {
    "string": "DT_STRING",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "int64": "DT_INT64",
}


def _tensor_info(
    name: str, dtype: str, shape: Sequence[int | None], is_unknown: bool = False
) -> dict[str, Any]:
    """Returns TF Serving's description of a tensor, with -1 for sizes of None.

    Args:
      is_unknown: whether the tensor may have any shape.
    """
    sizes = [{"size": str(size or -1), "name": ""} for size in shape]
    tensor_shape = {"unknown_rank": is_unknown, "dim": sizes}
    return {"dtype": _DTYPES[dtype], "tensor_shape": tensor_shape, "name": name}


def describe_signatures(name: str, number: int, model: Servable) -> dict[str, Any]:
    """Returns TF Serving's metadata of a model: the inputs and outputs of its signatures."""
    raw = {
        c.request: _tensor_info(c.request, c.dtype, (), c.width == 1)
        for c in model.interface.columns
    }
    examples = {EXAMPLES_INPUT: _tensor_info(EXAMPLES_INPUT, "string", (None,))}
    outputs = {
        output: _tensor_info(output, dtype, shape)
        for output, (dtype, shape) in model.outputs.items()
    }
    method = "tensorflow/serving/predict"
    inputs_by_signature = {RAW: raw, EXAMPLES: examples} if model.takes_examples else {RAW: raw}
    signatures = {
        signature: {"inputs": inputs, "outputs": outputs, "method_name": method}
        for signature, inputs in inputs_by_signature.items()
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(number)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }
