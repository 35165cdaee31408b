"""The OpenAPI document of the served version."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import orjson

from components.serving.model import FeatureColumn, Servable
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.openapi import describe_api
from trainer_module.export.interface import RawColumn

_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAGElEQVR42mNcwIAfMDGMKhhVMKpghCoAAButAODZubsA"
    "AAAAAElFTkSuQmCC"
)
"""A grey PNG of 32 by 32 pixels, in base64."""


class ApiDocuments:
    """The OpenAPI documents of the served versions, which are made at the first request."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._documents: WeakKeyDictionary[Servable, bytes] = WeakKeyDictionary()
        """The document of each model that is in memory."""
        self._lock = asyncio.Lock()

    async def read(self, number: int, model: Servable) -> bytes:
        """Returns a document as JSON.

        Args:
          number: the number of the served version.
          model: the served model.
        """
        async with self._lock:
            if model not in self._documents:
                # Other requests are answered meanwhile.
                self._documents[model] = await asyncio.to_thread(self._make, number, model)
            return self._documents[model]

    def _make(self, number: int, model: Servable) -> bytes:
        name, has_key = self._options.name, bool(self._options.key)
        return orjson.dumps(describe_api(name, number, model, example_row(model), has_key=has_key))


def example_row(model: Servable) -> dict[str, Any]:
    """Returns a row that the model can predict, by request name, without values of the data."""
    return {column.request: _neutral_value(column) for column in model.interface.columns}


def _neutral_value(column: RawColumn) -> Any:
    """Returns zeros, empty texts, or a grey picture."""
    if column.picture:
        return {"b64": _PICTURE}
    if isinstance(column, FeatureColumn) and column.shape:
        return np.zeros(column.shape, int).tolist()
    value = "" if column.dtype == "string" else 0
    if column.width == 1:
        return value
    return [value] * (column.width or 0)
