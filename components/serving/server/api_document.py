"""The OpenAPI document of the served version, and the rule for values of the data in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import orjson

from components.serving.example_row import example_row
from components.serving.model import Servable
from components.serving.server.options import LOCAL_HOSTS, ServeOptions
from components.serving.server.protocols.openapi import describe_api

_OF_PROXIES = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""The headers that reverse proxies add to requests."""


def may_show_data(options: ServeOptions, headers: Mapping[str, str]) -> bool:
    """Returns whether the example in a document may be a row of the data.

    No other answer of the server contains values of the data. They are therefore shown only to
    clients with the API key, or on a server that only this machine can reach. A website can let a
    name of its own resolve to this machine (DNS rebinding) and read answers through the user's
    browser; the Host header of such requests has the website's name. A reverse proxy on this
    machine makes the server public.

    Args:
      headers: the headers of the request by lower-case name. The key has been checked already.
    """
    if not options.page or options.private is None:
        return False
    try:
        name = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return False
    if options.key:
        return True
    is_local = options.host in LOCAL_HOSTS and name in LOCAL_HOSTS
    return is_local and not any(header in headers for header in _OF_PROXIES)


class ApiDocuments:
    """The OpenAPI documents of the served version, which are made at the first request."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._documents: WeakKeyDictionary[Servable, dict[bool, bytes]] = WeakKeyDictionary()
        """The documents of each model that is in memory, without and with a row of the data."""
        self._lock = asyncio.Lock()

    async def read(self, number: int, model: Servable, headers: Mapping[str, str]) -> bytes:
        """Returns a document as JSON.

        Args:
          number: the number of the served version.
          model: the served model.
          headers: the headers of the request by lower-case name.
        """
        has_data = may_show_data(self._options, headers)
        async with self._lock:
            documents = self._documents.setdefault(model, {})
            if has_data not in documents:
                # The golden rows are read in a thread, so that other requests are answered.
                documents[has_data] = await asyncio.to_thread(self._make, number, model, has_data)
            return documents[has_data]

    def _make(self, number: int, model: Servable, has_data: bool) -> bytes:
        options = self._options
        example = example_row(model, options.private if has_data else None)
        document = describe_api(options.name, number, model, example, has_key=bool(options.key))
        return orjson.dumps(document)
