"""TF Serving's REST API: what requests ask, and how answers are written.

https://www.tensorflow.org/tfx/serving/api_rest
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, RAW, Arrays
from components.serving.server.protocols.texts import Lists, Texts
from components.serving.server.protocols.values import Columns, Rows, decode_base64, from_columns
from components.serving.server.replies import RequestError, unknown_name
from trainer_module.export.interface import ModelInterface

_MOST_SHARED = 64 << 20
"""Characters that all rows of a request may share, counted once for each row."""
_ERROR = {"error_code": "OK", "error_message": ""}


def to_request(body: Any, interface: ModelInterface) -> tuple[str, Rows | Columns | Arrays, bool]:
    """What a request for `:predict` asks.

    A request that names no signature is for tf.Examples, as with TF Serving, or for columns if
    it gives any.

    Args:
      body: parsed.
      interface: of the model.

    Returns:
      The signature, its rows, its columns or its tensors, and whether rows were given rather than
      columns.

    Raises:
      RequestError: it is no such request.
    """
    if not isinstance(body, dict):
        raise RequestError('the body is no object: right is {"instances": [...]}.')
    rows, columns = body.get("instances"), body.get("inputs")
    if ("instances" in body) == ("inputs" in body):
        raise RequestError("the body needs either `instances`, of rows, or `inputs`, of columns.")
    signature = _read_signature(body)
    if rows is not None and not isinstance(rows, list):
        raise RequestError("`instances` is no list: give one value a row.")
    is_of_examples = _are_examples(rows) if rows is not None else _are_examples_by_name(columns)
    if signature == EXAMPLES or (not signature and is_of_examples):
        return EXAMPLES, {EXAMPLES_INPUT: _examples(rows, columns)}, rows is not None
    if rows is not None:
        return RAW, _not_empty(rows, "instances"), True
    names = [column.request for column in interface.columns]
    if not isinstance(columns, dict):
        if len(names) != 1:
            raise RequestError("`inputs` is no object: give a list of values per column.")
        columns = {names[0]: columns}
    return RAW, _with_rows(from_columns(columns, interface)), False


def _read_signature(body: Mapping[str, Any]) -> str:
    """The signature that a request names; empty if it names none."""
    signature = body.get("signature_name", "")
    if signature not in ("", RAW, EXAMPLES):
        raise RequestError(f"there is no signature {signature!r}: right is {RAW} or {EXAMPLES}.")
    return str(signature)


def _with_rows(columns: Columns) -> Columns:
    if not next(iter(columns.values())):
        raise RequestError("`inputs` has no rows: give at least one.")
    return columns


def _not_empty(rows: Rows, where: str) -> Rows:
    if not rows:
        raise RequestError(f"`{where}` is empty: give one object a row.")
    return rows


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


def write_rows(rows: Sequence[bytes]) -> bytes:
    """The answer to `:predict` by row; of several rows each text may be."""
    return b'{"predictions":[%b]}' % b",".join(rows)


def write_columns(columns: Mapping[str, Texts]) -> bytes:
    """The answer to `:predict` by column; of one output it is not named. As `write_rows`."""
    lists = {name: b"[%b]" % b",".join(texts) for name, texts in columns.items()}
    if len(lists) == 1:
        return b'{"outputs":%b}' % next(iter(lists.values()))
    named = [b"%b:%b" % (orjson.dumps(name), texts) for name, texts in lists.items()]
    return b'{"outputs":{%b}}' % b",".join(named)


def write_results(rows: Sequence[bytes]) -> bytes:
    """The answer to `:classify` and `:regress`; as `write_rows`."""
    return b'{"results":[%b]}' % b",".join(rows)


def to_examples_request(body: Any, interface: ModelInterface) -> Rows:
    """What a request for `:classify` or `:regress` asks: rows of `serving_raw`.

    Raises:
      RequestError: it is no such request.
    """
    if not isinstance(body, dict) or not isinstance(body.get("examples"), list):
        raise RequestError('the body needs `examples`: {"examples": [{"column": value}, ...]}.')
    _read_signature(body)
    context, rows = body.get("context", {}), body["examples"]
    if not isinstance(context, dict):
        raise RequestError("`context` is no object: give columns that all rows share.")
    for name in context:
        if name not in interface.by_request:
            raise unknown_name("context", name, interface.by_request)
    # Its columns become tensors, in which each row has a value of its own.
    if context and len(json.dumps(context)) * len(rows) > _MOST_SHARED:
        raise RequestError("`context` is too large for so many rows: send fewer at once.", 413)
    rows = [{**context, **row} if isinstance(row, dict) else row for row in rows]
    return _not_empty(rows, "examples")


def to_classes(lists: Lists) -> list[Any]:
    """What `:classify` is answered: pairs of a class and its score, by row.

    Raises:
      RequestError: the model predicts a number.
    """
    if "scores" not in lists or "classes" not in lists:
        raise RequestError("the model predicts a number: ask :regress or :predict.")
    pairs = zip(lists["classes"], lists["scores"], strict=True)
    return [list(map(list, zip(*pair, strict=True))) for pair in pairs]


def to_numbers(lists: Lists) -> list[Any]:
    """What `:regress` is answered: a number by row.

    Raises:
      RequestError: the model predicts a class.
    """
    if "value" not in lists:
        raise RequestError("the model predicts a class: ask :classify or :predict.")
    return lists["value"]


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
