"""The OpenAPI 3.1 document of the server, made from the inputs and outputs of the served model.

https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from components.example_gen.columns.tensors import MISSING
from components.serving.model import FeatureColumn, Servable
from components.serving.requests import EXAMPLES, EXAMPLES_INPUT, RAW
from components.serving.server.replies import ID_HEADER
from components.serving.top_classes import CLASSES, SCORES
from trainer_module.export.interface import ModelInterface, RawColumn

_Json = dict[str, Any]


def describe_api(
    name: str, number: int, model: Servable, example: _Json, *, has_key: bool
) -> _Json:
    """Returns the OpenAPI document of a server.

    The schema `Row` has a property per column, in the order of the columns, whose title is the name
    of the column in the data. Its example is a row that the model can predict.

    Args:
      example: a row by request name.
      has_key: whether requests need the API key.
    """
    security: _Json = {"security": [{"bearer": []}, {"header": []}]} if has_key else {}
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": str(number), "description": _describe(model.interface)},
        "servers": [{"url": "/"}],
        **security,
        "paths": _tf_serving_paths(name, model) | _open_inference_paths(name) | _health_paths(),
        "components": {
            "schemas": {
                "Row": _row_schema(model.interface) | {"examples": [example]},
                "Prediction": _prediction_schema(model),
                "Bytes": _BYTES,
                "Error": _object({"error": {"type": "string"}}),
            },
            **({"securitySchemes": schemes} if has_key else {}),
        },
    }


def _describe(interface: ModelInterface) -> str:
    task = f" (task: {interface.task})" if interface.task else ""
    return f"Predicts {interface.label}{task}." if interface.label else f"A model{task}."


def _tf_serving_paths(name: str, model: Servable) -> _Json:
    """Returns the paths of TF Serving's REST API."""
    path = f"/v1/models/{quote(name, safe='')}"
    has_classes = {CLASSES, SCORES} <= model.outputs.keys()
    pairs = {"type": "array", "items": {"type": "array", "prefixItems": [_TEXT, _NUMBER]}}
    paths = {
        f"{path}:predict": _post(
            "predict",
            "Predicts rows or columns.",
            {"oneOf": _prediction_requests(model, has_classes)},
            {"oneOf": [_object({"predictions": _list(_PREDICTION)}), _object({"outputs": {}})]},
        ),
        path: _get("status", "Returns the state of each version."),
        f"{path}/metadata": _get("metadata", "Returns the inputs and outputs of each signature."),
    }
    row_request = _object({"examples": _list(_ROW)}, _top_k(has_classes))
    if has_classes:
        results = _object({"results": _list(pairs)})
        paths[f"{path}:classify"] = _post(
            "classify", "Returns pairs of a class and its score.", row_request, results
        )
    elif "value" in model.outputs:
        results = _object({"results": _list(_NUMBER)})
        paths[f"{path}:regress"] = _post("regress", "Returns a number.", row_request, results)
    return paths


def _prediction_requests(model: Servable, has_classes: bool) -> list[_Json]:
    """Returns the schemas of a `:predict` request: rows, columns, and tf.Examples."""
    columns = model.interface.by_request
    optional = {"signature_name": {"const": RAW}} | _top_k(has_classes)
    lists = _object({name: _list(_column_schema(column)) for name, column in columns.items()})
    lists |= _unused_columns(model.interface)
    requests = [
        _object({"instances": _list(_ROW)}, optional),
        _object({"inputs": lists}, optional),
    ]
    if model.takes_examples:
        examples = _list(_object({EXAMPLES_INPUT: _BYTES_REFERENCE}))
        optional = {"signature_name": {"const": EXAMPLES}} | _top_k(has_classes)
        requests.append(_object({"instances": examples}, optional))
    return requests


def _top_k(has_classes: bool) -> _Json:
    if not has_classes:
        return {}
    description = "The number of classes in the answer, the most probable first; by default all."
    return {"top_k": {"type": "integer", "minimum": 1, "description": description}}


def _open_inference_paths(name: str) -> _Json:
    """Returns the paths of Open Inference v2, whose tensors the protocol itself describes."""
    path = f"/v2/models/{quote(name, safe='')}"
    shape = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    tensor = _object({"name": _TEXT, "datatype": _TEXT, "shape": shape}, {"data": {}}, closed=False)
    request = _object({"inputs": _list(tensor)}, closed=False)
    answer = _object({"outputs": _list(tensor)}, closed=False)
    return {
        f"{path}/infer": _post("infer", "Predicts tensors (Open Inference v2).", request, answer),
        path: _get("model", "Returns the name, datatype and shape of each tensor."),
        "/v2/health/ready": _get("ready", "Returns 200 if a version is served.", is_open=True),
    }


def _health_paths() -> _Json:
    metrics = _get("metrics", "Returns the metrics in Prometheus's format.")
    metrics["get"]["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    return {
        "/healthz": _get("live", "Returns 200 if the server runs.", is_open=True),
        "/metrics": metrics,
    }


def _row_schema(interface: ModelInterface) -> _Json:
    columns = interface.by_request.items()
    row = _object({name: _column_schema(column) for name, column in columns})
    return row | _unused_columns(interface)


def _unused_columns(interface: ModelInterface) -> _Json:
    """Returns the keyword that allows the columns of the training data that the model ignores.

    They are not among the properties, from which the page makes its form.
    """
    names = "|".join(map(re.escape, sorted(interface.unused)))
    return {"patternProperties": {f"^({names})$": {}}} if names else {}


def _column_schema(column: RawColumn) -> _Json:
    """Returns the schema of a column's values in a row."""
    return {"title": column.name, **_values_schema(column)}


def _values_schema(column: RawColumn) -> _Json:
    if isinstance(column, FeatureColumn) and column.shape:
        return _nested(_scalar_schema(column), column.shape)
    if column.width == 1:
        return _scalar_schema(column)
    if column.width is None:
        return {"type": ["array", "null"], "items": _scalar_schema(column)}
    size = {"minItems": column.width, "maxItems": column.width}
    return {"type": "array", "items": _scalar_schema(column), **size}


def _scalar_schema(column: RawColumn) -> _Json:
    """Returns the schema of a single value; the value null is missing."""
    if column.picture:
        return _BYTES | {"properties": {"b64": {**_BASE64, "contentMediaType": "image/*"}}}
    if column.dtype != "string":
        kind = "integer" if column.is_whole else "number"
        return {"type": [kind, "null"] if column.dtype in MISSING else kind}
    reader = column.text_reader
    if reader is None:
        return _BYTES | {"type": ["string", "null", "object"]}
    return {"type": ["string", "number", "boolean", "null"], "description": reader.right}


def _prediction_schema(model: Servable) -> _Json:
    """Returns the schema of a prediction: an object, or the only output of the model itself."""
    outputs = {
        name: {"title": name, **_output_schema(name, dtype, shape[1:])}
        for name, (dtype, shape) in model.outputs.items()
    }
    return _object(outputs) if len(outputs) > 1 else next(iter(outputs.values()))


def _output_schema(name: str, dtype: str, shape: Sequence[int | None]) -> _Json:
    value = _TEXT if dtype == "string" else _NUMBER
    if dtype == "string" and name.endswith("_bytes"):
        value = _BYTES_REFERENCE
    # `top_k` shortens lists.
    return _nested(value, [None] * len(shape))


def _nested(value: _Json, shape: Sequence[int | None]) -> _Json:
    """Returns the schema of nested lists; a size of None is not checked."""
    for size in reversed(shape):
        value = _list(value) | ({} if size is None else {"minItems": size, "maxItems": size})
    return value


_TEXT: _Json = {"type": "string"}
_NUMBER: _Json = {"type": ["number", "null"]}
"""A number of an answer. NaN and infinity are null."""
_BASE64: _Json = {"type": "string", "contentEncoding": "base64"}
_BYTES: _Json = {
    "type": "object",
    "properties": {"b64": _BASE64},
    "required": ["b64"],
    "additionalProperties": False,
}
_ROW, _PREDICTION, _BYTES_REFERENCE, _ERROR = (
    {"$ref": f"#/components/schemas/{name}"} for name in ("Row", "Prediction", "Bytes", "Error")
)


def _list(items: _Json) -> _Json:
    return {"type": "array", "items": items}


def _object(required: _Json, optional: _Json | None = None, *, closed: bool = True) -> _Json:
    """Returns the schema of an object; a closed object has no other properties."""
    schema = {"type": "object", "properties": required | (optional or {})}
    schema["required"] = [*required]
    return schema | ({"additionalProperties": False} if closed else {})


def _get(operation: str, summary: str, *, is_open: bool = False) -> _Json:
    """Returns the description of a GET; an open operation needs no API key."""
    responses = {"200": _response("The answer.", {}), "default": _error_response()}
    security: _Json = {"security": []} if is_open else {}
    return {
        "get": {
            "operationId": operation,
            "summary": summary,
            "responses": responses,
            **security,
        }
    }


def _post(operation: str, summary: str, request: _Json, answer: _Json) -> _Json:
    identifier = {"name": ID_HEADER, "in": "header", "schema": _TEXT}
    return {
        "post": {
            "operationId": operation,
            "summary": summary,
            "parameters": [identifier],
            "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
            "responses": {
                "200": _response("The predictions, in the order of the rows.", answer),
                "default": _error_response(),
            },
        }
    }


def _response(description: str, schema: _Json) -> _Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _error_response() -> _Json:
    return _response("The request is invalid, too large, or cannot be answered now.", _ERROR)
