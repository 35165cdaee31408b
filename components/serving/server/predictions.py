"""Prediction requests from parsing to response: read, coalesced, predicted and serialised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from components.serving.model import Servable
from components.serving.request_log.log import RequestLog
from components.serving.request_log.rows import AnsweredBatch, LoggedRequest
from components.serving.requests import (
    EXAMPLES,
    MISSING,
    RAW,
    Arrays,
    UnreadableValues,
    find_unreadable,
    measure_pictures,
)
from components.serving.server.batching import (
    AsyncResponseFuture,
    Batcher,
    ResponseFuture,
    timeout_error,
)
from components.serving.server.metrics import Metrics
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.open_inference import check_tensors
from components.serving.server.protocols.values import (
    RequestInputs,
    are_tensors,
    as_tensors,
    check_size,
    rows_to_arrays,
    to_arrays,
)
from components.serving.server.reading import (
    SMALL_BYTES,
    MemoryBudget,
    PredictionRequest,
    ReadRequest,
    Reservation,
    memory_of,
    read_request,
)
from components.serving.server.reading_process import LargeReader
from components.serving.server.replies import (
    BatchResults,
    Reply,
    RequestError,
    ResponseFormat,
    ResultSlice,
    attempt,
    error_reply,
    size_of_part,
)
from components.serving.server.repository import Repository
from components.serving.settings import OnUnreadable
from trainer_module.errors import DataError
from trainer_module.machine import count_cores

PICTURES_PER_REQUEST = 4
"""The most pixels of a request, as a multiple of the largest picture's."""
_TENSORS_OF_BODY = 2
"""The memory reserved for the tensors of a large request before they are known, in bodies."""


class ParsedRows(NamedTuple):
    """A parsed request, or some of its rows."""

    inputs: RequestInputs
    form: ResponseFormat
    name: bytes
    rows: int
    start: int | None = None
    """The place of the first row; None for all rows."""


class _Joined(NamedTuple):
    """The concatenated tensors of several requests."""

    places: Sequence[int]
    """The places of the requests, in the order of their rows."""
    columns: Arrays


@dataclass(frozen=True, eq=False)
class SignatureCall:
    """A callable signature of a model, which predicts coalesced requests."""

    model: Servable
    signature: str
    options: ServeOptions
    metrics: Metrics
    log: RequestLog | None = None

    def __call__(self, requests: Sequence[ParsedRows]) -> list[Any]:
        """Returns the serialised outputs, or the Reply of an error, for each request.

        Invalid requests are found before the model is called. The model predicts all others
        together, unless these are too large together.
        """
        results: dict[int, Any] = {}
        parts = self._join_halves(requests, range(len(requests)), results)
        if len(parts) > 1 and results:
            good = [place for place in range(len(requests)) if place not in results]
            parts = self._join_halves(requests, good, results)
        for part in parts:
            self._predict(requests, part, results)
        return [results[place] for place in range(len(requests))]

    def _join_halves(
        self, requests: Sequence[ParsedRows], places: Sequence[int], results: dict[int, Any]
    ) -> list[_Joined]:
        """Returns the tensors of all requests together; if that fails, of recursive halves.

        Errors of single requests are stored in `results`.
        """
        try:
            return [self._join(requests, places)]
        except Exception as error:
            if len(places) == 1:
                results[places[0]] = error_reply(error)
                return []
        return [
            one for half in _halves(places) for one in self._join_halves(requests, half, results)
        ]

    def _join(self, requests: Sequence[ParsedRows], places: Sequence[int]) -> _Joined:
        """Returns the concatenated tensors of several requests.

        JSON rows of all requests are converted together, and so are JSON columns.
        """
        order: tuple[list[int], ...] = [], [], []
        of_kind: tuple[list[Any], ...] = [], [], []
        for place in places:
            kind = _kind_of(requests[place].inputs)
            order[kind].append(place)
            of_kind[kind].append(requests[place].inputs)
        rows, columns, tensors = of_kind
        parts, interface = [], self.model.interface
        if rows:
            parts.append(rows_to_arrays([*chain.from_iterable(rows)], interface))
        if columns:
            together = {n: [*chain.from_iterable(one[n] for one in columns)] for n in columns[0]}
            parts.append(to_arrays(together, interface))
        parts += tensors
        joined = {name: join([part[name] for part in parts]) for name in parts[0]}
        if tensors and self.signature == RAW:
            check_tensors(joined, interface)
        return _Joined([*chain.from_iterable(order)], self.check(joined))

    def check(self, tensors: Arrays) -> Arrays:
        """Returns the tensors after checking their pictures and texts.

        Raises:
          RequestError: a picture is damaged or too large, the pictures together are too large, or a
            text cannot be parsed and `on_unreadable` is `refuse`.
        """
        most = self.options.max_pixels
        try:
            measured = measure_pictures(
                tensors, self.model.interface, are_examples=self._are_examples, most=most
            )
        except DataError as error:
            raise RequestError(str(error)) from None
        pixels, most = sum(measured.pixels) if measured else 0, PICTURES_PER_REQUEST * most
        if pixels > most:
            raise RequestError(
                f"the pictures have {pixels:,} pixels in total, more than the {most:,} of a "
                "request; send fewer pictures per request.",
                413,
            )
        if self.options.on_unreadable is OnUnreadable.REFUSE:
            for one in self._find_unreadable(tensors):
                raise RequestError(
                    f"{one.column!r} of row {one.row} is {one.text!r}, expected {one.right}, or"
                    " null for a missing value."
                )
        return tensors

    def read(self, inputs: RequestInputs) -> Arrays:
        """Returns the tensors of a request; raises RequestError for invalid inputs."""
        return self.check(as_tensors(inputs, self.model.interface))

    @property
    def _are_examples(self) -> bool:
        return self.signature == EXAMPLES

    def _find_unreadable(self, tensors: Arrays) -> list[UnreadableValues]:
        return find_unreadable(tensors, self.model.interface, are_examples=self._are_examples)

    def _answer(self, columns: Arrays) -> Arrays:
        ask = self.model.predict_examples if self._are_examples else self.model.predict
        answers = ask(columns)
        self.metrics.count(answers)
        if self.options.on_unreadable is OnUnreadable.MISSING:
            self.metrics.count_unreadable(self._find_unreadable(columns))
        return answers

    def _predict(
        self, requests: Sequence[ParsedRows], joined: _Joined, results: dict[int, Any]
    ) -> None:
        """Predicts requests together; if that fails, predicts recursive halves."""
        try:
            answers = BatchResults(self._answer(joined.columns))
        except Exception as error:
            if len(joined.places) == 1:
                results[joined.places[0]] = error_reply(error)
                return
        else:
            self._write(requests, joined, answers, results)
            return
        for half in _halves(joined.places):
            for part in self._join_halves(requests, half, results):
                self._predict(requests, part, results)

    def _write(
        self,
        requests: Sequence[ParsedRows],
        joined: _Joined,
        answers: BatchResults,
        results: dict[int, Any],
    ) -> None:
        """Serialises the outputs for each request, and adds the requests to the log."""
        end = 0
        for place in joined.places:
            start, end = end, end + requests[place].rows
            answer = ResultSlice(answers, slice(start, end))
            results[place] = attempt(_write, requests[place], answer)
        if self.log is not None:
            ones = [requests[place] for place in joined.places]
            logged = [LoggedRequest(one.name.decode(), one.rows, one.start) for one in ones]
            columns, arrays = joined.columns, answers.arrays
            self.log.note(
                AnsweredBatch(logged, time.time(), self.model, self.signature, columns, arrays)
            )


_ROWS, _COLUMNS, _TENSORS = range(3)


def _kind_of(inputs: RequestInputs) -> int:
    if isinstance(inputs, list):
        return _ROWS
    return _TENSORS if are_tensors(inputs) else _COLUMNS


def _halves(places: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    middle = len(places) // 2
    return places[:middle], places[middle:]


def join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows of several requests; lists are padded to the longest."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    check_size(sum(map(len, parts)), width)
    fill = MISSING.get("string" if parts[0].dtype == object else parts[0].dtype.name, 0)
    together = np.full((sum(map(len, parts)), width), fill, parts[0].dtype)
    end = 0
    for part in parts:
        together[end : end + len(part), : part.shape[1]] = part
        end += len(part)
    return together


def _write(parsed: ParsedRows, answer: ResultSlice) -> Any:
    """Returns the response, or the serialised outputs of some rows."""
    part = parsed.form.part(answer)
    return parsed.form.reply([part]) if parsed.start is None else part


class Predictions:
    """The prediction service for the versions of one model."""

    def __init__(self, options: ServeOptions, repository: Repository, is_shared: bool) -> None:
        """Args:
        options: the checked options.
        repository: the versions of the model.
        is_shared: whether this process is one of several workers.
        """
        self._options, self._repository = options, repository
        self.metrics = Metrics(
            lambda: self._batcher.waiting_rows,
            lambda: repository.number or 0,
            lambda: repository.failures,
            is_shared=is_shared,
        )
        self.room = MemoryBudget(options.memory_bytes)
        """The memory limit of all requests in progress."""
        self._executor = ThreadPoolExecutor(thread_name_prefix="model")
        self._batcher = Batcher(
            self._executor,
            self.metrics.batch_rows.observe,
            # One core parses requests and writes responses.
            threads=max(1, count_cores() // options.workers - 1),
            seconds=options.answer_seconds,
            room=self.room,
        )
        self._reader = LargeReader(options)
        self._tasks: dict[ResponseFuture, asyncio.Task[None]] = {}
        """The tasks that answer large requests."""
        self._calls: dict[str, SignatureCall] = {}
        self.log = RequestLog(options.log, self.metrics.registry) if options.log else None

    def find_version(
        self, name: str, version: str | None = None, label: str | None = None
    ) -> tuple[int, Servable]:
        """Returns the number and the model of the version that a path names.

        Raises:
          RequestError: the model or version does not exist, or is not loaded yet.
        """
        if name != self._options.name:
            raise RequestError(
                f"there is no model {name!r}; this server has {self._options.name!r}.", 404
            )
        return self._repository.find(version, label)

    def answer(
        self,
        request: PredictionRequest,
        answer: ResponseFuture,
        reservation: Reservation | None = None,
    ) -> None:
        """Answers a request, at once or later.

        Args:
          request: the received request.
          answer: the future for the Reply.
          reservation: the memory reserved for the body, if any.
        """
        try:
            path, size = request.path, memory_of(request.body)
            number, model = self.find_version(path.name, path.version, path.label)
            if size > SMALL_BYTES:
                self._start(
                    partial(self._answer_large, request, number, model, answer.client, reservation),
                    answer,
                )
                return
            read = read_request(request, number, model.interface, self._options.max_rows)
            call = self._call(model, read.signature)
            if read.rows > 1 and read.rows > self._batcher.most_rows(call):
                self._start(
                    partial(self._answer_parts, read, model, request.name, answer.client), answer
                )
                return
            parsed = ParsedRows(read.inputs, read.form, request.name, read.rows)
            self._batcher.enqueue(call, parsed, read.rows, answer, size)
        except Exception as error:
            answer.set_result(error_reply(error))

    def drop(self, answer: ResponseFuture) -> None:
        """Cancels a request whose response is no longer needed."""
        task = self._tasks.pop(answer, None)
        if task is not None:
            task.cancel()
        else:
            self._batcher.drop(answer)

    def _start(self, respond: Callable[[], Awaitable[Reply]], answer: ResponseFuture) -> None:
        """Starts a task that answers a request, with the usual timeout."""
        self._tasks[answer] = asyncio.create_task(self._finish(respond, answer))

    async def _finish(
        self, respond: Callable[[], Awaitable[Reply]], answer: ResponseFuture
    ) -> None:
        seconds = self._options.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                begun = respond()
                del respond  # Frees the reference to the body.
                reply = await begun
        except TimeoutError:
            reply = error_reply(timeout_error(seconds))
        except Exception as error:
            reply = error_reply(error)
        self._tasks.pop(answer, None)
        if not answer.done():
            answer.set_result(reply)

    async def _answer_large(
        self,
        request: PredictionRequest,
        number: int,
        model: Servable,
        client: Hashable,
        reservation: Reservation | None,
    ) -> Reply:
        """Answers a large request, which is parsed in the child process."""
        name, size = request.name, len(request.body)
        with Reservation(self.room) as more:
            more.take(_TENSORS_OF_BODY * size)
            read = await self._reader.read(request, number, model.interface)
            del request
            if isinstance(read, Reply):
                return read
            if reservation is not None:
                reservation.release(reservation.size)
            more.release(more.size)
            more.take(size_of_part(read.inputs))
            return await self._answer_parts(read, model, name, client)

    async def _answer_parts(
        self, read: ReadRequest, model: Servable, name: bytes, client: Hashable
    ) -> Reply:
        """Answers a request of many rows in parts, so that others are answered in between."""
        loop = asyncio.get_running_loop()
        call, rows = self._call(model, read.signature), read.rows
        # The whole request is checked first, so that errors name the right row.
        tensors = await loop.run_in_executor(self._executor, attempt, call.read, read.inputs)
        if isinstance(tensors, Reply):
            return tensors
        parts, start = [], 0
        with Reservation(self.room) as reservation:
            while start < rows:
                end = min(rows, start + self._batcher.most_rows(call))
                some = {column: values[start:end] for column, values in tensors.items()}
                answer = AsyncResponseFuture(client)
                parsed = ParsedRows(some, read.form, name, end - start, start)
                self._batcher.enqueue(call, parsed, end - start, answer)
                try:
                    part = await answer
                finally:
                    self._batcher.drop(answer)
                if isinstance(part, Reply):
                    return part
                reservation.take(size_of_part(part))
                if reservation.size > self._options.max_bytes:
                    raise RequestError(
                        f"the answer is larger than {self._options.max_bytes:,} bytes: send fewer"
                        " rows per request.",
                        413,
                    )
                parts.append(part)
                start = end
            return await loop.run_in_executor(self._executor, attempt, read.form.reply, parts)

    def _call(self, model: Servable, signature: str) -> SignatureCall:
        """Returns the callable signature, the same object for requests that can be coalesced."""
        found = self._calls.get(signature)
        if found is None or found.model is not model:
            found = SignatureCall(model, signature, self._options, self.metrics, self.log)
            self._calls[signature] = found
        return found
