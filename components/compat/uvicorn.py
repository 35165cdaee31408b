"""Private parts of uvicorn 0.54: the methods that the connections of `serve` call or replace.

`HttpToolsProtocol` has no public hooks for the start of an answer and for the end of the wait for
the next request. If the private methods have changed, the limits of connections may not work, so
the server does not start.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trainer_module.compat.insides import Known, require_known

KNOWN: Known = {
    "uvicorn.protocols.http.httptools_impl": {
        "HttpToolsProtocol.on_headers_complete": "1ea8589acfad",
        "HttpToolsProtocol.on_response_complete": "64e254f28e38",
        "HttpToolsProtocol._start_asgi_task": "9c08c2571ae9",
        "HttpToolsProtocol._unset_keepalive_if_required": "00a6a4e47214",
    }
}


def check_uvicorn() -> None:
    """Raises InternalError if the private methods of uvicorn have changed."""
    require_known(KNOWN, "the limits of connections")


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, with public names for two private methods."""

    def begin_answer(self, cycle: Any, app: Any) -> None:
        """Begins to answer a request. uvicorn calls the method for each request.

        Args:
          cycle: uvicorn's RequestResponseCycle of the request.
        """
        super()._start_asgi_task(cycle, app)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.begin_answer(cycle, app)

    def end_wait(self) -> None:
        """Cancels the timeout after which uvicorn closes a connection without a new request."""
        self._unset_keepalive_if_required()
