"""The OpenAPI document of the served version."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

import orjson

from components.serving.example_row import example_row
from components.serving.model import Servable
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.openapi import describe_api


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
