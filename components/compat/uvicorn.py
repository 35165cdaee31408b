"""uvicorn 0.54: the private methods that our server's connections use.

uvicorn has no option for how the answer to a request is begun, nor for ending the wait for the next
request; a hook of `HttpToolsProtocol` for each would be the public way. If they have changed, the
limits of connections may not hold, and the server does not start.
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
    """Raises InternalError if the methods of uvicorn are not the known ones."""
    require_known(KNOWN, "the limits of connections")


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, with public names for the methods that a subclass calls or replaces."""

    def begin_answer(self, cycle: Any, app: Any) -> None:
        """Begins to answer a request by ASGI; uvicorn calls it for each request.

        Args:
          cycle: uvicorn's RequestResponseCycle of the request.
          app: the ASGI application.
        """
        super()._start_asgi_task(cycle, app)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.begin_answer(cycle, app)

    def end_wait(self) -> None:
        """Ends the wait for the next request, after which the connection would be closed."""
        self._unset_keepalive_if_required()
