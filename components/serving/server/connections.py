"""Client connections: uvicorn's, with a path around ASGI for most prediction requests.

The measurements compare this with the same application on plain uvicorn (httptools and uvloop),
with 32 clients on the same 2 cores. For requests of a row and a model that takes no time, a process
answers 2.6 times as many requests as over ASGI: 14,383 and 5,480 a second, with 0.042 and 0.080 ms
of a core each. For a small model, two workers answer 3.1 times as many, 8,327 and 2,726 a second,
as batches become larger. Over ASGI, a request of 32 rows takes 1.4 to 1.6 times as much CPU time.
The limits, which apply to both paths, take 0.01 ms.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from components.compat.uvicorn import HttpConnection
from components.serving.server.metrics import CLIENT_GONE
from components.serving.server.options import ServeOptions
from components.serving.server.predictions import Predictions
from components.serving.server.reading import (
    MAX_DIGITS,
    PredictionPath,
    PredictionRequest,
    read_length,
    read_plain_url,
)
from components.serving.server.replies import HEADER, Reply, RequestError, choose_id, error_reply

logger = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/v2/health/live", "/v2/health/ready")
"""The paths of health checks, which need no API key."""
_BEARER = b"bearer "
MOST_HEAD_BYTES = 1 << 16
"""The size limit of a request's head, and of the trailer after a chunked body. The parser has no
limit of its own, and takes time that grows with the square of the size."""
SPARE_CONNECTIONS = 64
"""The connections beyond the limit that are accepted for health checks."""
_SPARE_SECONDS = 2.0
"""The seconds within which a request on a spare connection has to arrive."""
_IDLE_SECONDS = 5.0
"""The idle seconds after which a connection may be closed for a new one, if there are too many."""
_SEARCH_SECONDS = 0.1
"""The seconds between two searches for an idle connection, after a search that found none."""
_WARN_SECONDS = 60.0
"""The seconds between two warnings that all connections are in use."""
_PIECE_BYTES = 1 << 12
"""The bytes parsed at a time: a few dozen small requests, which may then wait for responses."""
_LARGE_BYTES = 1 << 20
"""The size from which a response counts towards the memory limit while it is sent."""
_CLOSE_SECONDS = 1.0
"""The seconds that a client has to read the last response and to finish the TLS shutdown. uvloop
allows half a minute, which would delay the end of the server as much."""
_CLOSE_BYTES = 1 << 20
"""The most bytes that the client may send in these seconds."""
_HALF_CLOSED_SECONDS = 1.0
"""The seconds for which a half-closed connection is kept: a client that has gone looks the same."""


class OpenConnections:
    """The limit of a process's open connections, and the choice of idle ones to close."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._full_until = self._silent_until = -math.inf

    def make_room(self, connections: Iterable[ClientConnection], now: float) -> bool:
        """Closes the connection that has been idle for longest; returns False if all are in use.

        Args:
          connections: all connections of this process.
          now: the time of the event loop's clock.
        """
        if now < self._full_until:
            return False
        oldest = min(connections, key=lambda connection: connection.idle_since)
        if now - oldest.idle_since >= _IDLE_SECONDS:
            oldest.transport.close()
            return True
        self._full_until = now + _SEARCH_SECONDS
        if now >= self._silent_until:
            self._silent_until = now + _WARN_SECONDS
            logger.warning("all %d connections are in use: new ones are refused", self.limit)
        return False

    def limit_error(self) -> RequestError:
        """Returns the error for a client that exceeds the limit of connections."""
        return RequestError(f"all {self.limit} connections are in use: try again later.", 503)


class ClientConnection(HttpConnection):
    """A client connection, which keeps requests in order and answers them by the batcher or over
    ASGI.

    ASGI takes a task, four messages and two dictionaries per request, which is more time than all
    other work for a row. Therefore a prediction request that arrives whole is answered without
    ASGI: `_PredictionCycle` takes the place of uvicorn's cycle. A request that arrives in several
    pieces, that is pipelined behind an unanswered one, or that has unusual headers is answered over
    ASGI.

    A client may send requests without reading the responses. Therefore only a little is parsed at
    once. While requests wait for earlier ones, or while responses wait to be read, nothing is
    parsed, and nothing is read from the socket.
    """

    flow: _FlowControl

    def __init__(
        self,
        predictions: Predictions,
        options: ServeOptions,
        open_connections: OpenConnections,
        *arguments: Any,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._predictions, self._options, self._open_connections = (
            predictions,
            options,
            open_connections,
        )
        self._seconds = options.body_seconds
        """The seconds for a head to arrive, and for the client to read some of a response."""
        self._is_spare = False
        """Whether the connection exceeds the limit, and serves health checks only."""
        self._running: Any = None
        """The cycle whose response is in progress, or was last; `cycle` is that of the newest
        request."""
        self._task: asyncio.Task[None] | None = None
        """The task of the running cycle, if it uses ASGI."""
        self._path: PredictionPath | None = None
        """The path of a prediction request that avoids ASGI if it arrives whole."""
        self._head: dict[bytes, bytes] = {}
        """The headers of that request, by name."""
        self._parts: list[bytes] = []
        """The pieces of that request's body."""
        self._is_parsing = False
        self._unread = b""
        """The bytes received but not yet parsed."""
        self._is_over = False
        """Whether received bytes are discarded, as no further request is parsed."""
        self._has_shut_down = False
        """Whether the client has closed its sending side."""
        self._last_reply: Reply | None = None
        """The error response to send when all requests are answered."""
        self._discarded = 0
        """The number of bytes received after the end."""
        self._is_silent = True
        """Whether the client has sent nothing yet."""
        self._gets_head = True
        """Whether the head of the next request is incomplete or has not begun."""
        self._gets_body = False
        """Whether the newest request uses ASGI and has not arrived whole."""
        self._is_in_order = False
        """Whether the bytes being parsed begin or end a head, or belong to a body."""
        self._head_bytes = 0
        self._unsent_bytes = 0
        """The bytes of a large response that the client has not read yet."""
        self._client_timer: asyncio.TimerHandle | None = None
        self._sending_timer: asyncio.TimerHandle | None = None
        self._gone_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the connection, or refuses it if there are too many."""
        ending = _ClosingTransport(transport, self.loop, self._seconds)
        super().connection_made(cast("asyncio.Transport", ending))
        self.flow = _FlowControl(self.transport)
        self._find_room()
        self._wait_for_client()

    def _find_room(self) -> None:
        beyond, now = len(self.connections) - self._open_connections.limit, self.loop.time()
        if beyond <= 0 or self._open_connections.make_room(cast("Any", self.connections), now):
            return
        if beyond <= SPARE_CONNECTIONS:
            self._is_spare = True
        else:
            self._is_over = True
            self._write_error(error_reply(self._open_connections.limit_error()))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the request in progress and all timers."""
        self._is_over, self._unread = True, b""
        super().connection_lost(exc)
        self._give_back_room()
        self.end_wait()
        self._stop_waiting()
        for timer in (self._sending_timer, self._gone_timer):
            if timer is not None:
                timer.cancel()
        self.pipeline.clear()
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            if self._task is not None:
                self._task.cancel()
            else:
                seconds = time.perf_counter() - running.began
                self._predictions.metrics.observe(running.route, CLIENT_GONE, seconds)
                self._predictions.drop(running)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Handles a client that has closed its sending side: finishes the response in progress.

        Returns:
          Whether the connection stays open meanwhile.
        """
        is_secure = self.transport.get_extra_info("sslcontext") is not None
        if not self._is_over:
            self._drop_unfinished()
        if is_secure or not self._is_answering():
            self.transport.close()  # Written data is sent before.
            return False
        self._is_over = self._has_shut_down = True
        self._gone_timer = self.loop.call_later(_HALF_CLOSED_SECONDS, self.transport.abort)
        return True

    def _is_answering(self) -> bool:
        return bool(self.pipeline) or not (self._running is None or self._running.response_complete)

    def _wait_for_client(self) -> None:
        """Starts the timeout of a head, or of the rest of a body that nothing reads."""
        if self._client_timer is None:
            seconds = _SPARE_SECONDS if self._is_spare else self._seconds
            self._client_timer = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._client_timer is not None:
            self._client_timer.cancel()
            self._client_timer = None

    def _give_up(self) -> None:
        self._client_timer = None
        if self._is_answering() or self._unread:
            self._wait_for_client()  # The head may be queued behind a slow request.
        elif self._is_silent or self._gets_body:
            self.transport.close()  # A connection pool would take a 408 for its next response.
        else:
            said = f"the request's headers did not arrive within {self._seconds:g} seconds."
            self._refuse(RequestError(said, 408))

    def _refuse(self, error: RequestError) -> None:
        """Sends an error and closes the connection, after earlier requests have been answered."""
        if self._is_over or self.transport.is_closing():
            return
        self._is_over, self._unread = True, b""
        if self._drop_unfinished():
            self._last_reply = error_reply(error)
        self._end_if_answered()

    def _drop_unfinished(self) -> bool:
        """Cancels the newest request if it has not arrived whole.

        Returns:
          Whether an error response may still be sent, as no response has begun.
        """
        if not self._gets_body:
            return True
        if self.cycle.response_started:
            return False
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        if self._running is self.cycle:
            self._running = None
        elif self.pipeline:
            self.pipeline.popleft()
        return True

    def _end_if_answered(self) -> None:
        if self._is_answering() or self.transport.is_closing():
            return
        if self._gone_timer is not None:
            self._gone_timer.cancel()
        if self._last_reply is not None:
            self._write_error(self._last_reply)
        self.end_wait()
        self._stop_waiting()
        if self._has_shut_down or not self.transport.can_write_eof():
            self.transport.close()
            return
        # Closing a socket with unread input resets it, which would lose responses.
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(_CLOSE_SECONDS, self.transport.close)

    def _write_error(self, reply: Reply) -> None:
        """Writes a response to bytes that are no valid request, and so have no cycle."""
        self._predictions.metrics.observe("other", reply.status, 0.0)
        self._write(reply, choose_id(b""), keep_alive=False)

    def pause_writing(self) -> None:
        """Pauses writers, and starts the timeout of a client that reads no response."""
        super().pause_writing()
        if self._sending_timer is None:
            self._watch_sending(math.inf)

    def _watch_sending(self, before: float) -> None:
        self._sending_timer = None
        size = self.transport.get_write_buffer_size()
        if not self.flow.write_paused:
            return
        if size >= before:
            self.transport.abort()
            return
        seconds = self._seconds
        self._sending_timer = self.loop.call_later(seconds, self._watch_sending, size)

    def resume_writing(self) -> None:
        """Continues with the pending requests, now that the client has read enough."""
        super().resume_writing()
        self._give_back_room()
        self._resume()

    def data_received(self, data: bytes) -> None:
        """Parses received bytes: part of a request, or several requests."""
        if self._is_over:
            self._discarded += len(data)
            if self._discarded > _CLOSE_BYTES:
                self.transport.close()
            return
        self._is_silent = False
        self._read(self._unread + data if self._unread else data)

    def _resume(self) -> None:
        """Parses pending bytes, unless they still have to wait."""
        if self.flow.holds and not (self._is_parsing or self._is_over):
            self._read(self._unread)
            self.flow.resume_reading()  # No effect if bytes are pending again.

    def _read(self, data: bytes) -> None:
        """Parses bytes until a request has to wait for an earlier one."""
        self.end_wait()
        self._is_parsing, self._unread = True, b""
        for start in range(0, len(data), _PIECE_BYTES):
            if self.pipeline or self.flow.write_paused:
                self._unread = data[start:]
                break
            self._parse(data[start : start + _PIECE_BYTES])
            if self._is_over or self.transport.is_closing():
                break
        self._is_parsing = False
        if self._is_over or self.transport.is_closing():
            return
        if self._path is not None:
            self._path = None
            self._start_asgi()
            super().on_body(b"".join(self._parts))
        self.flow.holds = bool(self._unread or self.pipeline)
        if self.flow.holds:
            self.flow.pause_reading()
        if self._gets_head or not self._is_in_order:
            self._wait_for_client()

    @property
    def idle_since(self) -> float:
        """The time of the last response, or of the connection's start; infinite while in use."""
        if self._is_answering() or self.transport.is_closing():
            return math.inf
        if self.timeout_keep_alive_task is not None:
            return self.timeout_keep_alive_task.when() - self.timeout_keep_alive
        if self._is_silent and self._client_timer is not None and not self._is_spare:
            return self._client_timer.when() - self._seconds
        return math.inf

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for too long."""
        if not self._is_answering():
            super().timeout_keep_alive_handler()

    def on_response_complete(self) -> None:
        """Continues with pending requests after a response."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._is_over:
            self._end_if_answered()
            return
        if self.flow.holds and not self.pipeline:
            self._resume()
        if self._gets_body and self.cycle.response_complete:
            self._wait_for_client()

    def _parse(self, data: bytes) -> None:
        self._is_in_order = False
        size, rest = len(data), data
        while rest:
            rest = self._feed(rest)
        self._head_bytes = 0 if self._is_in_order else self._head_bytes + size
        if self._head_bytes > MOST_HEAD_BYTES:
            said = f"the request's headers are larger than {MOST_HEAD_BYTES:,} bytes."
            self._refuse(RequestError(said, 431))

    def _feed(self, data: bytes) -> bytes:
        """Passes bytes to the parser.

        Returns:
          Bytes to parse next, if the request offers an upgrade to another protocol such as h2c: the
            request without the offer, and all that follows. Java's HTTP client sends the offer by
            default, and the parser would skip the body.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            after = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._refuse(self._explain(error))
            return b""
        else:
            return b""
        if self.parser.get_method() == b"CONNECT":
            self._refuse(RequestError("this server is not a proxy: CONNECT is not supported.", 405))
            return b""
        version = self.parser.get_http_version().encode()
        head = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() != b"upgrade")
            if name != b"upgrade":
                head.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        # As in uvicorn: data after a request with `Connection: close` is no parsing error.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join(head) + b"\r\n\r\n" + after

    def _explain(self, error: httptools.HttpParserError) -> RequestError:
        """Returns the error response for an error of the parser, or of a callback within it."""
        cause = error.__context__
        if isinstance(cause, RequestError):
            return cause
        if isinstance(cause, httptools.HttpParserInvalidURLError):
            is_long = len(self.url) >= MOST_HEAD_BYTES
            return RequestError("the request has no valid path.", 414 if is_long else 400)
        if isinstance(error, httptools.HttpParserCallbackError):
            logger.error("a request failed", exc_info=cause)
            return RequestError("internal server error; see the log of the server.", 500)
        return RequestError(f"the request is not valid HTTP: {error}.")

    def on_message_begin(self) -> None:
        """Resets the state for a new request."""
        self._gets_head = self._is_in_order = True
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        """Chooses between the batcher and ASGI for a request, and validates its head."""
        self._gets_head, self._is_in_order = False, True
        if self.parser.should_upgrade():
            return
        self._stop_waiting()
        self._head = dict(self.headers)
        self._path, self._parts = self._find_plain_path(), []
        if self._path is not None:
            return
        version = self.parser.get_http_version()
        _check_head(version, self.headers, self._head)
        if version == "1.0":
            self.expect_100_continue = False
        if self._is_spare and self.url.decode("latin-1") not in OPEN_PATHS:
            raise self._open_connections.limit_error()
        self._start_asgi()
        if self._is_spare:
            self.cycle.keep_alive = False

    def _find_plain_path(self) -> PredictionPath | None:
        """Returns the path of a prediction request that needs no ASGI; None for other requests.

        The head of such a request passes `_check_head`, and needs no further checks.
        """
        headers = self._head
        if (
            self.parser.get_method() != b"POST"
            or self._is_answering()
            or self.flow.write_paused
            or self._is_spare
            or len(headers) != len(self.headers)
            or b"host" not in headers
            or self.parser.get_http_version() != "1.1"
            or b"content-encoding" in headers
            or b"expect" in headers
            or not has_key(headers, self._options.key)
        ):
            return None
        length = read_length(headers.get(b"content-length", b""))
        if length is None or length > self._options.max_bytes:
            return None
        return read_plain_url(self.url)

    def _start_asgi(self) -> None:
        """Starts the request in uvicorn, up to its body."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()
        self._gets_body = True
        self.headers = []  # Collects the trailer of a chunked body, which nothing reads.

    def begin_answer(self, cycle: Any, app: Any) -> None:
        """Starts the task that answers a request over ASGI, and keeps a reference to it."""
        self._running = cycle
        answering = cycle.run_asgi(functools.partial(_answer_unless_gone, cycle, app))
        self._task = self.loop.create_task(answering)
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    def on_body(self, body: bytes) -> None:
        """Stores a piece of the body."""
        self._is_in_order = True
        if self._path is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Starts the prediction, now that the request has arrived whole."""
        if self.parser.should_upgrade():
            return
        self._stop_waiting()
        if self._path is None:
            self._gets_body = False
            super().on_message_complete()
            if self.cycle.response_complete and self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
            return
        path, self._path = self._path, None
        cycle = _PredictionCycle(self, path, choose_id(self._head.get(HEADER, b"")))
        self.cycle = cast("Any", cycle)
        self._running, self._task = cycle, None
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._predictions.answer(PredictionRequest(path, self._head, body, cycle.name), cycle)

    def send(self, cycle: _PredictionCycle, reply: Reply) -> None:
        """Sends the response to a request that avoided ASGI."""
        if len(reply.body) > _LARGE_BYTES:
            reply = self._take_room(reply)
        self._predictions.metrics.observe(
            cycle.route, reply.status, time.perf_counter() - cycle.began
        )
        self._write(reply, cycle.name, cycle.keep_alive)
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _take_room(self, reply: Reply) -> Reply:
        """Reserves memory for a large response until the client has read most of it.

        Returns:
          The response, or an error response if there is no room.
        """
        try:
            self._predictions.memory.take(len(reply.body), _LARGE_BYTES)
        except RequestError as error:
            return error_reply(error)
        self._unsent_bytes = len(reply.body)
        self.loop.call_soon(self._give_back_room)
        return reply

    def _give_back_room(self) -> None:
        if not self.flow.write_paused or self.transport.is_closing():
            self._predictions.memory.release(self._unsent_bytes)
            self._unsent_bytes = 0

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
        self.transport.write(b"".join(lines))


def _check_head(
    version: str, headers: Sequence[tuple[bytes, bytes]], named: Mapping[bytes, bytes]
) -> None:
    """Raises RequestError for a head that proxies may interpret differently.

    The parser accepts such heads, but RFC 9112 does not.
    """
    if version not in ("1.1", "1.0"):  # 0.9 stands for a request without a version.
        status = 400 if version == "0.9" else 505
        raise RequestError(f"HTTP/{version} is not supported, expected HTTP/1.1 or 1.0.", status)
    hosts = 1 if len(named) == len(headers) else sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (b"host" not in named and version == "1.1"):
        raise RequestError("an HTTP/1.1 request needs exactly one Host header.")
    if len(named.get(b"content-length", b"")) > MAX_DIGITS:
        raise RequestError(f"Content-Length has more than {MAX_DIGITS} digits.")
    if b"transfer-encoding" in named:
        values = [value for name, value in headers if name == b"transfer-encoding"]
        *others, last = [coding.strip().lower() for coding in b",".join(values).split(b",")]
        if last != b"chunked" or b"chunked" in others:
            raise RequestError("Transfer-Encoding must end with chunked, and name it once.")
        if others:
            raise RequestError("Transfer-Encoding supports only chunked.", 501)


async def _answer_unless_gone(
    cycle: Any, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> None:
    """Runs the application, and suppresses the cancellation by a lost connection."""
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        if not cycle.disconnected:
            raise


class _PredictionCycle:
    """A prediction request that avoids ASGI: uvicorn's cycle and the batcher's future in one."""

    __slots__ = (
        "_connection", "began", "client", "disconnected", "keep_alive", "message_event", "name",
        "response_complete", "route",
    )  # fmt: skip

    def __init__(self, connection: ClientConnection, path: PredictionPath, name: bytes) -> None:
        self._connection, self.name, self.client = connection, name, connection.client
        self.route = path.verb or "infer"
        self.began = time.perf_counter()
        self.keep_alive = connection.parser.should_keep_alive()
        self.message_event = _NO_BODY
        self.disconnected = self.response_complete = False

    def done(self) -> bool:
        """Returns whether the response is sent, or the client has gone."""
        return self.response_complete or self.disconnected

    def set_result(self, reply: Reply) -> None:
        """Sends the response to the client."""
        self.response_complete = True
        self._connection.send(self, reply)


_NO_BODY = asyncio.Event()
"""The event of uvicorn's cycles that signals a body; unused, as the body is already there."""


class _FlowControl(FlowControl):
    """uvicorn's flow control, without reading from the socket while received bytes are pending."""

    holds = False

    def resume_reading(self) -> None:
        """Resumes reading from the socket, unless bytes are pending."""
        if not self.holds:
            super().resume_reading()


class _ClosingTransport:
    """A transport whose close waits for the client to read all sent data, up to a timeout.

    Data written after the client has gone is dropped.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float
    ) -> None:
        """Args:
        transport: the transport to wrap.
        loop: the event loop of the transport.
        seconds: the timeout for a client that reads nothing of the remaining data.
        """
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Writes data, or drops it if the transport is closing."""
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Closes the connection when all data is sent."""
        if self.is_closing():
            return
        self._transport.close()
        is_secure = self._transport.get_extra_info("sslcontext") is not None
        if is_secure or self._transport.get_write_buffer_size():
            self._loop.call_later(_CLOSE_SECONDS, self._abort_when_sent, math.inf, 0.0)

    def _abort_when_sent(self, before: float, stalled: float) -> None:
        size = self._transport.get_write_buffer_size()
        stalled = 0.0 if size < before else stalled + _CLOSE_SECONDS
        if size and stalled < self._seconds:
            self._loop.call_later(_CLOSE_SECONDS, self._abort_when_sent, size, stalled)
        else:
            self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def has_key(headers: Mapping[bytes, bytes], key: str) -> bool:
    """Returns whether a request contains the API key, or none is needed."""
    if not key:
        return True
    given = headers.get(b"authorization", b"")
    if given[: len(_BEARER)].lower() == _BEARER:
        given = given[len(_BEARER) :].strip()
    else:
        given = headers.get(b"x-api-key", b"")
    return hmac.compare_digest(given, key.encode())
