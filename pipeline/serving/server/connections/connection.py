"""One client's connection: uvicorn's, with a shorter way for most requests for predictions."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from pipeline.serving.request_log.ids import HEADER, choose_id
from pipeline.serving.server.connections.quick import Quick
from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.protocols.paths import PredictionPath
from pipeline.serving.server.protocols.replies import Reply, refusal
from pipeline.serving.server.reading import PredictionRequest

MOST_HEAD_BYTES = 1 << 16
"""Of the head of a request, or of what follows a body in chunks. The parser keeps them without end,
and takes a time that grows with their square."""
_FAREWELL_SECONDS = 1.0
"""For which a client over TLS may say that it has seen the end. uvloop waits half a minute for
that, and so would the end of the server."""


class ClientConnection(HttpToolsProtocol):
    """uvicorn's, which reads requests and keeps order among them, and gives them to ASGI.

    ASGI takes a task, four messages and two dictionaries a request, which is more time than all
    else that is done for a row. So a request for a prediction that comes in one piece is answered
    without: `_Prediction` takes the place of uvicorn's cycle. What comes in several pieces, behind
    another request that is not answered yet, or with anything uncommon, goes by ASGI.
    """

    def __init__(self, quick: Quick, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._quick = quick
        self._path: PredictionPath | None = None
        """Of a request that goes the shorter way if the whole of it comes."""
        self._named: dict[bytes, bytes] = {}
        """Its headers."""
        self._parts: list[bytes] = []
        """Its body."""
        self._is_silent = True
        """The client has sent nothing yet."""
        self._gets_head = True
        """Of the next request no head has come yet, or not all of it."""
        self._is_in_order = False
        """The bytes that are being read begin or end a head, or belong to a body."""
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins."""
        super().connection_made(cast(asyncio.Transport, _Gathering(transport, self.loop)))
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        super().connection_lost(exc)
        self._stop_waiting()
        if isinstance(self.cycle, _Prediction) and not self.cycle.response_complete:
            self._quick.drop(self.cycle)

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._quick.head_seconds, self._give_up_head)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up_head(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_for_head()  # The head may be behind a request that takes its time.
        elif self._is_silent:
            self.transport.close()  # A pool of clients would take words for its next answer.
        elif not self.transport.is_closing():
            said = f"the head did not come within {self._quick.head_seconds:g} seconds."
            self._refuse_head(RequestError(said, 408))

    def _refuse_head(self, error: RequestError) -> None:
        """Ends a connection of which the next request cannot be read."""
        if self.cycle is None or self.cycle.response_complete:
            reply = refusal(error)
            self._quick.metrics.observe("other", reply.status, 0.0)
            self._write(reply, choose_id(b""), keep_alive=False)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Takes some of a request, or several."""
        self._is_silent = self._is_in_order = False
        self._read(data)
        self._head_bytes = 0 if self._is_in_order else self._head_bytes + len(data)
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            said = f"the head of the request is larger than {MOST_HEAD_BYTES:,} bytes."
            self._refuse_head(RequestError(said, 431))
        if self._gets_head or not self._is_in_order:
            self._wait_for_head()
        if self._path is not None:
            self._path = None
            if not self.transport.is_closing():
                self._hand_on()
                super().on_body(b"".join(self._parts))

    def _read(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse_head(RequestError(f"the request is no HTTP: {error}."))

    def _stay(self, rest: bytes) -> None:
        """Reads a request again as if it did not offer another protocol, such as h2c.

        Java's client does so unless it is told not to, and the parser leaves the body out then.
        """
        if self.parser.get_method() == b"CONNECT":
            self._refuse_head(RequestError("CONNECT is for proxies, which this is none.", 405))
            return
        head = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() != b"upgrade")
            if name != b"upgrade":
                head.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self._read(b"\r\n".join(head) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._gets_head = self._is_in_order = True
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        """Decides which way it goes."""
        self._gets_head, self._is_in_order = False, True
        if self.parser.should_upgrade():
            return
        self._stop_waiting()
        if self._is_plain():
            self._named = dict(self.headers)
            self._path = self._quick.takes(self.url, self._named)
            self._parts = []
        if self._path is None:
            self._hand_on()

    def _is_plain(self) -> bool:
        return (
            self.parser.get_method() == b"POST"
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and self.parser.get_http_version() == "1.1"
        )

    def _hand_on(self) -> None:
        """Has uvicorn begin the request, and go on to its body."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes some of the body."""
        self._is_in_order = True
        if self._path is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Has the request answered, now that there is all of it."""
        if self.parser.should_upgrade():
            return
        self._stop_waiting()
        if self._path is None:
            super().on_message_complete()
            return
        path, self._path = self._path, None
        asked = _Prediction(self, path, choose_id(self._named.get(HEADER, b"")))
        self.cycle = cast(Any, asked)
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._quick.answer(PredictionRequest(path, self._named, body, asked.name), asked)

    def send(self, asked: _Prediction, reply: Reply) -> None:
        """Answers a request that went the shorter way."""
        self._quick.metrics.observe(asked.route, reply.status, time.perf_counter() - asked.began)
        self._write(reply, asked.name, asked.keep_alive)
        if not asked.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _write(self, reply: Reply, name: bytes, keep_alive: bool) -> None:
        lines = [STATUS_LINE[reply.status]]
        for header, value in (*self.server_state.default_headers, *reply.headers):
            lines += header, b": ", value, b"\r\n"
        lines.append(
            b"content-type: %b\r\ncontent-length: %d\r\n%b: %b\r\n%b\r\n%b"
            % (
                reply.content_type,
                len(reply.body),
                HEADER,
                name,
                b"" if keep_alive else b"connection: close\r\n",
                reply.body,
            )
        )
        cast(_Gathering, self.transport).write_now(b"".join(lines))


class _Prediction:
    """A request on the shorter way: what uvicorn asks of its cycles, and what waits for a reply."""

    __slots__ = (
        "_connection", "began", "client", "disconnected", "keep_alive", "message_event", "name",
        "response_complete", "route",
    )  # fmt: skip

    def __init__(self, connection: ClientConnection, path: PredictionPath, name: bytes) -> None:
        self._connection, self.name, self.client = connection, name, connection.client
        self.route = path.verb or "infer"
        self.began = time.perf_counter()
        self.keep_alive = connection.parser.should_keep_alive()
        self.message_event = _NOTHING
        self.disconnected = self.response_complete = False

    def done(self) -> bool:
        """Whether nobody waits any more."""
        return self.response_complete or self.disconnected

    def set_result(self, reply: Reply) -> None:
        """Sends an answer."""
        self.response_complete = True
        self._connection.send(self, reply)


class _NoEvent:
    """Nothing waits for a body that is there."""

    def set(self) -> None:
        """Does nothing."""


_NOTHING = _NoEvent()


class _Gathering:
    """A transport that sends what was written to it when the running step of the loop is over.

    uvicorn writes the head of an answer and its body one after the other. Sending takes a fifth of
    the time of a small request, and Python's lock changes hands each time.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Takes what is to be sent."""
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def write_now(self, data: bytes) -> None:
        """Sends what is whole already, behind what was written before."""
        self._send()
        self._transport.write(data)

    def close(self) -> None:
        """Ends the connection when all is sent."""
        self._send()
        self._transport.close()
        if self._transport.get_extra_info("sslcontext") is not None:
            self._loop.call_later(_FAREWELL_SECONDS, self._abort_when_sent)

    def _abort_when_sent(self) -> None:
        if self._transport.get_write_buffer_size():
            self._loop.call_later(_FAREWELL_SECONDS, self._abort_when_sent)
        else:
            self._transport.abort()

    def _send(self) -> None:
        if self._written:
            data, self._written = b"".join(self._written), []
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
