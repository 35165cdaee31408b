"""Client connections: uvicorn's connections, which answer most prediction requests without ASGI.

Requests a second, compared with the same application on plain uvicorn (httptools and uvloop), with
32 clients on the same 2 cores and requests of one row:

                                                  here      over ASGI     ratio
  one process, a model that takes no time       14,383          5,480       2.6
  two workers, a small model                     8,327          2,726       3.1

A request to the first model takes 0.042 ms of CPU time here, and 0.080 ms over ASGI. A request of
32 rows takes 1.4 to 1.6 times as much CPU time over ASGI as here. The limits in this module apply
to all requests, and take 0.01 ms of CPU time per request.
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
MAX_HEAD_BYTES = 1 << 16
"""The size limit of a request's head, and of the trailer after a chunked body. The parser has no
limit, and its time grows with the square of the size."""
SPARE_CONNECTIONS = 64
"""The number of connections beyond the limit that are accepted for health checks."""
_SPARE_SECONDS = 2.0
"""The seconds within which a request on a spare connection has to arrive."""
_IDLE_SECONDS = 5.0
"""The seconds after which an idle connection may be closed to make room for a new connection."""
_SEARCH_SECONDS = 0.1
"""The pause in seconds after a search that found no idle connection."""
_WARN_SECONDS = 60.0
"""The seconds between two warnings that all connections are in use."""
_PIECE_BYTES = 1 << 12
"""The bytes that are parsed at a time: at most a few dozen small requests."""
_LARGE_BYTES = 1 << 20
"""The size from which a response counts towards the memory limit while it is sent."""
_CLOSE_SECONDS = 1.0
"""The seconds within which a client has to read the last response and to finish the TLS shutdown.
uvloop would wait for 30 seconds, which would delay the end of the server."""
_CLOSE_BYTES = 1 << 20
"""The most bytes that the client may send after its last request."""
_HALF_CLOSED_SECONDS = 1.0
"""The seconds for which a half-closed connection is kept. Its client may wait for the response, or
may have closed the connection."""


class OpenConnections:
    """The limit of a process's open connections. If it is reached, idle connections are closed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._next_search = self._next_warning = -math.inf

    def close_idle(self, connections: Iterable[ClientConnection], now: float) -> bool:
        """Closes the connection that has been idle for longest.

        Args:
          now: the time of the event loop's clock.

        Returns:
          Whether a connection was closed. If not, all connections are in use.
        """
        if now < self._next_search:
            return False
        oldest = min(connections, key=lambda connection: connection.idle_since)
        if now - oldest.idle_since >= _IDLE_SECONDS:
            oldest.transport.close()
            return True
        self._next_search = now + _SEARCH_SECONDS
        if now >= self._next_warning:
            self._next_warning = now + _WARN_SECONDS
            logger.warning("all %d connections are in use: new connections are refused", self.limit)
        return False

    def limit_error(self) -> RequestError:
        """Returns the error for a client that exceeds the limit of connections."""
        return RequestError(f"all {self.limit} connections are in use: try again later.", 503)


class ClientConnection(HttpConnection):
    """A client connection, which answers requests in their order, with or without ASGI.

    ASGI takes a task, four messages and two dictionaries per request, which is more time than all
    other work for a row. Therefore a prediction request is answered without ASGI if it has arrived
    completely: `_PredictionCycle` replaces uvicorn's cycle. A request is answered over ASGI if it
    arrives in several pieces, has unusual headers, or is pipelined behind an unanswered request.

    A client may send requests without reading the responses. Therefore at most 4 KiB are parsed at
    a time. Nothing is parsed, and nothing is read from the socket, while a request waits for an
    earlier request, or while the client does not read its responses.
    """

    flow: _FlowControl

    def __init__(
        self,
        predictions: Predictions,
        options: ServeOptions,
        open_connections: OpenConnections,
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self._predictions = predictions
        self._options = options
        self._open_connections = open_connections
        self._seconds = options.body_seconds
        """The timeout in seconds for a head to arrive, and for the client to read a part of a
        response."""
        self._is_spare = False
        """Whether the connection exceeds the limit, and serves health checks only."""
        self._running: Any = None
        """The cycle whose response is in progress, or else the cycle of the last response. `cycle`
        is the cycle of the newest request, which may wait for earlier requests."""
        self._task: asyncio.Task[None] | None = None
        """The task of the running cycle, if the cycle uses ASGI."""
        self._path: PredictionPath | None = None
        """The path of the newest request, if it is a prediction that may be answered without ASGI.
        """
        self._head: dict[bytes, bytes] = {}
        """The headers of the newest request, by name."""
        self._parts: list[bytes] = []
        """The pieces of the body of the request with `_path`."""
        self._is_parsing = False
        self._unparsed = b""
        """The bytes that were received, but not parsed yet."""
        self._has_ended = False
        """Whether no further request is parsed. Received bytes are then discarded."""
        self._has_client_ended = False
        """Whether the client has closed its sending side."""
        self._last_reply: Reply | None = None
        """The error response to send when all requests have been answered."""
        self._discarded = 0
        self._is_silent = True
        """Whether the client has sent nothing yet."""
        self._awaits_head = True
        """Whether the head of the next request has not been parsed completely."""
        self._awaits_body = False
        """Whether the newest request uses ASGI, and its body has not arrived completely."""
        self._has_progressed = False
        """Whether the bytes that were parsed last began or ended a head, or belong to a body. If
        not, they extend an unfinished head or trailer, whose size is limited."""
        self._head_bytes = 0
        """The number of parsed bytes of an unfinished head or trailer."""
        self._unsent_bytes = 0
        """The bytes of a large response that the client has not read yet."""
        self._client_timer: asyncio.TimerHandle | None = None
        self._sending_timer: asyncio.TimerHandle | None = None
        self._gone_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the connection, or refuses it if there are too many connections."""
        closing = _ClosingTransport(transport, self.loop, self._seconds)
        super().connection_made(cast("asyncio.Transport", closing))
        self.flow = _FlowControl(self.transport)
        self._enforce_limit()
        self._wait_for_client()

    def _enforce_limit(self) -> None:
        """Closes an idle connection if there are too many connections.

        If all connections are in use, this connection serves health checks only, or is refused.
        """
        excess, now = len(self.connections) - self._open_connections.limit, self.loop.time()
        if excess <= 0 or self._open_connections.close_idle(cast("Any", self.connections), now):
            return
        if excess <= SPARE_CONNECTIONS:
            self._is_spare = True
        else:
            self._has_ended = True
            self._write_error(error_reply(self._open_connections.limit_error()))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the request in progress and all timers."""
        self._has_ended, self._unparsed = True, b""
        super().connection_lost(exc)
        self._release_memory()
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
                seconds = time.perf_counter() - running.start
                self._predictions.metrics.observe(running.route, CLIENT_GONE, seconds)
                self._predictions.drop(running)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Finishes the response in progress after the client has closed its sending side.

        Returns:
          Whether the connection remains open until the response has been sent.
        """
        is_secure = self.transport.get_extra_info("sslcontext") is not None
        if not self._has_ended:
            self._drop_unfinished()
        if is_secure or not self._is_answering():
            self.transport.close()  # Data that was written is still sent.
            return False
        self._has_ended = self._has_client_ended = True
        self._gone_timer = self.loop.call_later(_HALF_CLOSED_SECONDS, self.transport.abort)
        return True

    def _is_answering(self) -> bool:
        return bool(self.pipeline) or not (self._running is None or self._running.response_complete)

    def _wait_for_client(self) -> None:
        """Starts the timeout of a head, or of a body that arrives after the response was sent."""
        if self._client_timer is None:
            seconds = _SPARE_SECONDS if self._is_spare else self._seconds
            self._client_timer = self.loop.call_later(seconds, self._on_timeout)

    def _stop_waiting(self) -> None:
        if self._client_timer is not None:
            self._client_timer.cancel()
            self._client_timer = None

    def _on_timeout(self) -> None:
        """Closes the connection, or sends status 408, after the timeout of a head or a body."""
        self._client_timer = None
        if self._is_answering() or self._unparsed:
            self._wait_for_client()  # The head may be queued behind a slow request.
        elif self._is_silent or self._awaits_body:
            # A connection pool would take a 408 for the response to its next request.
            self.transport.close()
        else:
            message = f"the request's headers did not arrive within {self._seconds:g} seconds."
            self._refuse(RequestError(message, 408))

    def _refuse(self, error: RequestError) -> None:
        """Sends an error and closes the connection, after earlier requests have been answered."""
        if self._has_ended or self.transport.is_closing():
            return
        self._has_ended, self._unparsed = True, b""
        if self._drop_unfinished():
            self._last_reply = error_reply(error)
        self._end_if_answered()

    def _drop_unfinished(self) -> bool:
        """Cancels the newest request if it has not arrived completely.

        Returns:
          Whether an error response may be sent. If the response to this request has begun, no error
          response may follow.
        """
        if not self._awaits_body:
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
        """Sends the last error response and closes the connection if no request is in progress."""
        if self._is_answering() or self.transport.is_closing():
            return
        if self._gone_timer is not None:
            self._gone_timer.cancel()
        if self._last_reply is not None:
            self._write_error(self._last_reply)
        self.end_wait()
        self._stop_waiting()
        if self._has_client_ended or not self.transport.can_write_eof():
            self.transport.close()
            return
        # If a socket with unread input is closed, it is reset, and the client may lose responses.
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(_CLOSE_SECONDS, self.transport.close)

    def _write_error(self, reply: Reply) -> None:
        """Writes an error response without a cycle, for bytes that are not a valid request."""
        self._predictions.metrics.observe("other", reply.status, 0.0)
        self._write(reply, choose_id(b""), keep_alive=False)

    def pause_writing(self) -> None:
        """Pauses writers, and starts the timeout of a client that reads no response."""
        super().pause_writing()
        if self._sending_timer is None:
            self._watch_sending(math.inf)

    def _watch_sending(self, previous_size: float) -> None:
        """Ends the connection if the client has read nothing since the last check.

        Args:
          previous_size: the number of unsent bytes at the last check.
        """
        self._sending_timer = None
        size = self.transport.get_write_buffer_size()
        if not self.flow.write_paused:
            return
        if size >= previous_size:
            self.transport.abort()
            return
        seconds = self._seconds
        self._sending_timer = self.loop.call_later(seconds, self._watch_sending, size)

    def resume_writing(self) -> None:
        """Continues with the pending requests after the client has read most of the responses."""
        super().resume_writing()
        self._release_memory()
        self._resume()

    def data_received(self, data: bytes) -> None:
        """Parses received bytes: part of a request, or several requests."""
        if self._has_ended:
            self._discarded += len(data)
            if self._discarded > _CLOSE_BYTES:
                self.transport.close()
            return
        self._is_silent = False
        self._read(self._unparsed + data if self._unparsed else data)

    def _resume(self) -> None:
        """Parses pending bytes, unless they still have to wait."""
        if self.flow.is_blocked and not (self._is_parsing or self._has_ended):
            self._read(self._unparsed)
            self.flow.resume_reading()  # This has no effect if bytes are pending again.

    def _read(self, data: bytes) -> None:
        """Parses bytes until a request has to wait for an earlier request."""
        self.end_wait()
        self._is_parsing, self._unparsed = True, b""
        for start in range(0, len(data), _PIECE_BYTES):
            if self.pipeline or self.flow.write_paused:
                self._unparsed = data[start:]
                break
            self._parse(data[start : start + _PIECE_BYTES])
            if self._has_ended or self.transport.is_closing():
                break
        self._is_parsing = False
        if self._has_ended or self.transport.is_closing():
            return
        if self._path is not None:
            self._path = None
            self._start_asgi()
            super().on_body(b"".join(self._parts))
        self.flow.is_blocked = bool(self._unparsed or self.pipeline)
        if self.flow.is_blocked:
            self.flow.pause_reading()
        if self._awaits_head or not self._has_progressed:
            self._wait_for_client()

    @property
    def idle_since(self) -> float:
        """The time of the last response or of the connection's start, or infinity while in use."""
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
        if self._has_ended:
            self._end_if_answered()
            return
        if self.flow.is_blocked and not self.pipeline:
            self._resume()
        if self._awaits_body and self.cycle.response_complete:
            self._wait_for_client()

    def _parse(self, data: bytes) -> None:
        self._has_progressed = False
        size, remaining = len(data), data
        while remaining:
            remaining = self._feed(remaining)
        self._head_bytes = 0 if self._has_progressed else self._head_bytes + size
        if self._head_bytes > MAX_HEAD_BYTES:
            message = f"the request's headers are larger than {MAX_HEAD_BYTES:,} bytes."
            self._refuse(RequestError(message, 431))

    def _feed(self, data: bytes) -> bytes:
        """Passes bytes to the parser.

        If a request offers an upgrade to another protocol, such as h2c, the parser would skip its
        body. Java's HTTP client sends this offer by default. Therefore the request is parsed again
        without the offer.

        Returns:
          The bytes to parse next: the request without the offer and all following bytes, or no
          bytes.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            remaining = data[upgrade.args[0] :]
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
        # As in uvicorn, data after a request with `Connection: close` is not a parsing error.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join(head) + b"\r\n\r\n" + remaining

    def _explain(self, error: httptools.HttpParserError) -> RequestError:
        """Returns the error response for an error of the parser, or of a callback within it."""
        cause = error.__context__
        if isinstance(cause, RequestError):
            return cause
        if isinstance(cause, httptools.HttpParserInvalidURLError):
            is_long = len(self.url) >= MAX_HEAD_BYTES
            return RequestError("the request has no valid path.", 414 if is_long else 400)
        if isinstance(error, httptools.HttpParserCallbackError):
            logger.error("a request failed", exc_info=cause)
            return RequestError("internal server error; see the log of the server.", 500)
        return RequestError(f"the request is not valid HTTP: {error}.")

    def on_message_begin(self) -> None:
        """Resets the state for a new request."""
        self._awaits_head = self._has_progressed = True
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        """Validates the head of a request, and decides whether to answer the request over ASGI."""
        self._awaits_head, self._has_progressed = False, True
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
        """Returns the path of a prediction request that may be answered without ASGI, else None.

        If the result is a path, `_check_head` accepts the head, and is not called.
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
        """Passes the head of the request to uvicorn, which starts the request."""
        url, headers, expect_100_continue = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect_100_continue
        self.headers += headers
        super().on_headers_complete()
        self._awaits_body = True
        self.headers = []  # The parser adds the trailer of a chunked body, which is not used.

    def begin_answer(self, cycle: Any, app: Any) -> None:
        """Starts the task that answers a request over ASGI, and keeps a reference to it."""
        self._running = cycle
        answer = cycle.run_asgi(functools.partial(_run_unless_disconnected, cycle, app))
        self._task = self.loop.create_task(answer)
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    def on_body(self, body: bytes) -> None:
        """Stores a piece of the body."""
        self._has_progressed = True
        if self._path is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Starts the prediction after the request has arrived completely."""
        if self.parser.should_upgrade():
            return
        self._stop_waiting()
        if self._path is None:
            self._awaits_body = False
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
        request = PredictionRequest(path, self._head, body, cycle.request_id)
        self._predictions.answer(request, cycle)

    def send(self, cycle: _PredictionCycle, reply: Reply) -> None:
        """Sends the response to a request that was answered without ASGI."""
        if len(reply.body) > _LARGE_BYTES:
            reply = self._reserve_memory(reply)
        self._predictions.metrics.observe(
            cycle.route, reply.status, time.perf_counter() - cycle.start
        )
        self._write(reply, cycle.request_id, cycle.keep_alive)
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _reserve_memory(self, reply: Reply) -> Reply:
        """Reserves memory for a large response until the client has read most of it.

        Returns:
          The response, or an error response if the memory limit is reached.
        """
        try:
            self._predictions.memory.take(len(reply.body), _LARGE_BYTES)
        except RequestError as error:
            return error_reply(error)
        self._unsent_bytes = len(reply.body)
        self.loop.call_soon(self._release_memory)
        return reply

    def _release_memory(self) -> None:
        """Releases the memory of a large response, unless the client still has to read it."""
        if not self.flow.write_paused or self.transport.is_closing():
            self._predictions.memory.release(self._unsent_bytes)
            self._unsent_bytes = 0

    def _write(self, reply: Reply, request_id: bytes, keep_alive: bool) -> None:
        lines = [STATUS_LINE[reply.status]]
        for header, value in (*self.server_state.default_headers, *reply.headers):
            lines += header, b": ", value, b"\r\n"
        lines.append(
            b"content-type: %b\r\ncontent-length: %d\r\n%b: %b\r\n%b\r\n%b"
            % (
                reply.content_type,
                len(reply.body),
                HEADER,
                request_id,
                b"" if keep_alive else b"connection: close\r\n",
                reply.body,
            )
        )
        self.transport.write(b"".join(lines))


def _check_head(
    version: str, headers: Sequence[tuple[bytes, bytes]], by_name: Mapping[bytes, bytes]
) -> None:
    """Raises RequestError for a head that RFC 9112 forbids, but the parser accepts.

    Proxies may interpret such heads differently.

    Args:
      headers: all headers, which may repeat a name.
    """
    if version not in ("1.1", "1.0"):  # The parser returns 0.9 for a request without a version.
        status = 400 if version == "0.9" else 505
        raise RequestError(f"HTTP/{version} is not supported, expected HTTP/1.1 or 1.0.", status)
    hosts = 1 if len(by_name) == len(headers) else sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (b"host" not in by_name and version == "1.1"):
        raise RequestError("an HTTP/1.1 request needs exactly one Host header.")
    if len(by_name.get(b"content-length", b"")) > MAX_DIGITS:
        raise RequestError(f"Content-Length has more than {MAX_DIGITS} digits.")
    if b"transfer-encoding" in by_name:
        values = [value for name, value in headers if name == b"transfer-encoding"]
        *others, last = [coding.strip().lower() for coding in b",".join(values).split(b",")]
        if last != b"chunked" or b"chunked" in others:
            raise RequestError("Transfer-Encoding must contain chunked once, at the end.")
        if others:
            raise RequestError("Transfer-Encoding supports only chunked.", 501)


async def _run_unless_disconnected(
    cycle: Any, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> None:
    """Runs the application, and suppresses its cancellation after a lost connection."""
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        if not cycle.disconnected:
            raise


class _PredictionCycle:
    """A prediction request without ASGI, which is both uvicorn's cycle and the batcher's future."""

    __slots__ = (
        "_connection", "client", "disconnected", "keep_alive", "message_event", "request_id",
        "response_complete", "route", "start",
    )  # fmt: skip

    def __init__(
        self, connection: ClientConnection, path: PredictionPath, request_id: bytes
    ) -> None:
        self._connection, self.client = connection, connection.client
        self.request_id = request_id
        self.route = path.verb or "infer"
        self.start = time.perf_counter()
        self.keep_alive = connection.parser.should_keep_alive()
        self.message_event = _NO_BODY
        self.disconnected = self.response_complete = False

    def done(self) -> bool:
        """Returns whether the response was sent, or the client has disconnected."""
        return self.response_complete or self.disconnected

    def set_result(self, reply: Reply) -> None:
        """Sends the response to the client."""
        self.response_complete = True
        self._connection.send(self, reply)


_NO_BODY = asyncio.Event()
"""The event that uvicorn's cycles set when a part of the body arrives. A `_PredictionCycle` does
not use it, as its body has already arrived."""


class _FlowControl(FlowControl):
    """uvicorn's flow control, which does not read the socket while received bytes are pending."""

    is_blocked = False

    def resume_reading(self) -> None:
        """Resumes reading from the socket, unless bytes are pending."""
        if not self.is_blocked:
            super().resume_reading()


class _ClosingTransport:
    """A transport that is closed after the client has read all sent data, or after a timeout.

    Data that is written after the client has disconnected is dropped.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float
    ) -> None:
        """Args:
        transport: the transport to wrap.
        loop: the event loop of the transport.
        seconds: the timeout for a client that does not read the remaining data.
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

    def _abort_when_sent(self, previous_size: float, stalled_seconds: float) -> None:
        """Ends the connection if all data is sent, or if the client has stopped reading.

        Args:
          previous_size: the number of unsent bytes at the last check.
          stalled_seconds: the seconds for which the client has read nothing.
        """
        size = self._transport.get_write_buffer_size()
        stalled_seconds = 0.0 if size < previous_size else stalled_seconds + _CLOSE_SECONDS
        if size and stalled_seconds < self._seconds:
            self._loop.call_later(_CLOSE_SECONDS, self._abort_when_sent, size, stalled_seconds)
        else:
            self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def has_key(headers: Mapping[bytes, bytes], key: str) -> bool:
    """Returns whether a request contains the API key, or the server has no key."""
    if not key:
        return True
    value = headers.get(b"authorization", b"")
    if value[: len(_BEARER)].lower() == _BEARER:
        value = value[len(_BEARER) :].strip()
    else:
        value = headers.get(b"x-api-key", b"")
    return hmac.compare_digest(value, key.encode())
