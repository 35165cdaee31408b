"""The id of each request: as the client gives it, or made here; the answer says which it is."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ID_HEADER = "X-Request-Id"
_HEADER = ID_HEADER.lower().encode()
_GOOD = re.compile(rb"[\x21-\x7e]{1,200}")
"""An id is one word of ASCII; another one is not taken, and the answer shows the one that was
made."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered."""


class Identified:
    """Gives each request its id, and says so in the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        chosen = given if _GOOD.fullmatch(given) else uuid.uuid4().hex.encode()
        request_id.set(chosen.decode())

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (_HEADER, chosen)]
            await send(message)

        await self._app(scope, receive, tell)
