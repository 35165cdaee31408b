"""TF Serving's REST API: what requests ask, and how answers are written.

https://www.tensorflow.org/tfx/serving/api_rest
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.serving.model import EXAMPLES, EXAMPLES_INPUT, RAW
from pipeline.serving.servable import Arrays
from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.protocols.columns import Columns, from_columns, from_rows
from pipeline.serving.server.protocols.values import decode_base64
from trainer_module.exported.interface import ModelInterface

Lists = dict[str, list[Any]]
"""Answers by name, one a row."""

_ERROR = {"error_code": "OK", "error_message": ""}


def to_request(body: Any, interface: ModelInterface) -> tuple[str, Columns | Arrays, bool]:
    """What a request for `:predict` asks.

    A request that names no signature is for tf.Examples, as with TF Serving, or for columns if
    it gives any.

    Args:
      body: parsed.
      interface: of the model.

    Returns:
      The signature, its columns or its tensors, and whether rows were given, as objects, rather
      than columns.

    Raises:
      RequestError: it is no such request.
    """
    if not isinstance(body, dict):
        raise RequestError('the body is no object: right is {"instances": [...]}.')
    rows, columns = body.get("instances"), body.get("inputs")
    if ("instances" in body) == ("inputs" in body):
        raise RequestError("the body needs either `instances`, of rows, or `inputs`, of columns.")
    signature = body.get("signature_name", "")
    if signature not in ("", RAW, EXAMPLES):
        raise RequestError(f"there is no signature {signature!r}: right is {RAW} or {EXAMPLES}.")
    if rows is not None and not isinstance(rows, list):
        raise RequestError("`instances` is no list: give one value a row.")
    is_of_examples = _are_examples(rows) if rows is not None else _are_examples_by_name(columns)
    if signature == EXAMPLES or (not signature and is_of_examples):
        return EXAMPLES, {EXAMPLES_INPUT: _examples(rows, columns)}, rows is not None
    if rows is not None:
        return RAW, from_rows(rows, interface), True
    names = [column.request for column in interface.columns]
    if not isinstance(columns, dict):
        if len(names) != 1:
            raise RequestError("`inputs` is no object: give a list of values per column.")
        columns = {names[0]: columns}
    return RAW, _with_rows(from_columns(columns, interface)), False


def _with_rows(columns: Columns) -> Columns:
    if not next(iter(columns.values())):
        raise RequestError("`inputs` has no rows: give at least one.")
    return columns


def _are_examples(rows: Sequence[Any]) -> bool:
    first = rows[0] if rows else None
    return isinstance(first, dict) and first.keys() in ({EXAMPLES_INPUT}, {"b64"})


def _are_examples_by_name(columns: Any) -> bool:
    return isinstance(columns, dict) and columns.keys() == {EXAMPLES_INPUT}


def _examples(rows: Sequence[Any] | None, columns: Any) -> np.ndarray:
    if rows is None:
        rows = columns.get(EXAMPLES_INPUT) if isinstance(columns, dict) else columns
    if not isinstance(rows, list) or not rows:
        raise RequestError(f"`{EXAMPLES_INPUT}` is no list of serialised tf.Examples.")
    found = []
    for place, row in enumerate(rows):
        given = row.get(EXAMPLES_INPUT, row) if isinstance(row, dict) else row
        if not isinstance(given, dict) or given.keys() != {"b64"}:
            raise RequestError(
                f'instances[{place}] is no serialised tf.Example: right is {{"b64": "..."}}, or'
                f' "signature_name": "{RAW}" with a key per column.'
            )
        found.append(decode_base64(given["b64"], f"instances[{place}]"))
    return np.array(found, object)


def to_lists(answers: Arrays) -> Lists:
    """Answers as JSON has them, by name, one a row."""
    return {name: _to_list(name, values) for name, values in answers.items()}


def to_predictions(lists: Lists, are_rows: bool) -> dict[str, Any]:
    """The answer to `:predict`: by row, or by column; of one output it is not named."""
    single = next(iter(lists.values())) if len(lists) == 1 else None
    if not are_rows:
        return {"outputs": lists if single is None else single}
    if single is not None:
        return {"predictions": single}
    names = list(lists)
    return {"predictions": [dict(zip(names, row)) for row in zip(*lists.values())]}  # noqa: B905


def _to_list(name: str, values: np.ndarray) -> list[Any]:
    if values.dtype != object:
        listed: list[Any] = values.tolist()
        return listed
    encode = _as_base64 if name.endswith("_bytes") else _as_text
    known = {value: encode(value) for value in set(values.ravel().tolist())}
    return _mapped(values.tolist(), known)


def _mapped(values: list[Any], known: Mapping[bytes, Any]) -> list[Any]:
    return [_mapped(v, known) if isinstance(v, list) else known[v] for v in values]


def _as_text(value: bytes) -> str:
    return value.decode(errors="replace")


def _as_base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def to_examples_request(body: Any, interface: ModelInterface) -> Columns:
    """What a request for `:classify` or `:regress` asks: columns of `serving_raw`.

    Raises:
      RequestError: it is no such request.
    """
    if not isinstance(body, dict) or not isinstance(body.get("examples"), list):
        raise RequestError('the body needs `examples`: {"examples": [{"column": value}, ...]}.')
    context = body.get("context", {})
    if not isinstance(context, dict):
        raise RequestError("`context` is no object: give columns that all rows share.")
    rows = [{**context, **row} if isinstance(row, dict) else row for row in body["examples"]]
    return from_rows(rows, interface)


def to_classes(lists: Lists) -> dict[str, Any]:
    """The answer to `:classify`: pairs of a class and its score, by row.

    Raises:
      RequestError: the model predicts a number.
    """
    if "scores" not in lists or "classes" not in lists:
        raise RequestError("the model predicts a number: ask :regress or :predict.")
    pairs = zip(lists["classes"], lists["scores"], strict=True)
    return {"results": [list(map(list, zip(*pair, strict=True))) for pair in pairs]}


def to_numbers(lists: Lists) -> dict[str, Any]:
    """The answer to `:regress`: a number by row.

    Raises:
      RequestError: the model predicts a class.
    """
    if "value" not in lists:
        raise RequestError("the model predicts a class: ask :classify or :predict.")
    return {"results": lists["value"]}


def to_status(states: Sequence[tuple[int, str, str]]) -> dict[str, Any]:
    """The answer to a question for the versions: number, state and what failed of each."""
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
