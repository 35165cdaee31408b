"""Answering of prediction requests: parsing, coalescing, prediction and serialisation."""

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

from components.example_gen.columns.tensors import MISSING
from components.serving.model import Servable
from components.serving.request_log.log import RequestLog
from components.serving.request_log.rows import AnsweredBatch, LoggedRequest
from components.serving.requests import (
    EXAMPLES,
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
    ParsedRequest,
    PredictionRequest,
    Reservation,
    estimate_memory,
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
"""The most pixels of a request, as a multiple of `max_pixels`, the limit of one picture."""
_TENSOR_BYTES_PER_BYTE = 2
"""The memory that is reserved for the tensors of a large request before it is parsed, in bytes per
byte of its body."""


class ParsedRows(NamedTuple):
    """A parsed request, or some of its rows."""

    inputs: RequestInputs
    response_format: ResponseFormat
    request_id: bytes
    rows: int
    start: int | None = None
    """The index of the first row within its request, or None for a whole request."""


class _Joined(NamedTuple):
    """The concatenated tensors of several requests."""

    indices: Sequence[int]
    """The indices of the requests, in the order of their rows."""
    columns: Arrays


@dataclass(frozen=True, eq=False)
class SignatureCall:
    """A function that predicts coalesced requests by a signature of a model."""

    model: Servable
    signature: str
    options: ServeOptions
    metrics: Metrics
    log: RequestLog | None = None

    def __call__(self, requests: Sequence[ParsedRows]) -> list[Any]:
        """Returns the serialised outputs, or the Reply of an error, for each request.

        Invalid requests are found before the model is called. The model predicts the valid requests
        in one batch, or in several batches if one batch would be too large.
        """
        results: dict[int, Any] = {}
        parts = self._join_halves(requests, range(len(requests)), results)
        if len(parts) > 1 and results:
            valid = [index for index in range(len(requests)) if index not in results]
            parts = self._join_halves(requests, valid, results)
        for part in parts:
            self._predict(requests, part, results)
        return [results[index] for index in range(len(requests))]

    def _join_halves(
        self, requests: Sequence[ParsedRows], indices: Sequence[int], results: dict[int, Any]
    ) -> list[_Joined]:
        """Returns the concatenated tensors of requests, in as few parts as possible.

        If the requests cannot be concatenated, each half of them is tried, recursively. The errors
        of single requests are stored in `results`.
        """
        try:
            return [self._join(requests, indices)]
        except Exception as error:
            if len(indices) == 1:
                results[indices[0]] = error_reply(error)
                return []
        return [
            part for half in _halves(indices) for part in self._join_halves(requests, half, results)
        ]

    def _join(self, requests: Sequence[ParsedRows], indices: Sequence[int]) -> _Joined:
        """Returns the concatenated tensors of several requests.

        The JSON rows of all requests are converted in one step, and so are the JSON columns.
        """
        order: tuple[list[int], ...] = [], [], []
        inputs_by_kind: tuple[list[Any], ...] = [], [], []
        for index in indices:
            kind = _kind_of(requests[index].inputs)
            order[kind].append(index)
            inputs_by_kind[kind].append(requests[index].inputs)
        rows, columns, tensors = inputs_by_kind
        parts, interface = [], self.model.interface
        if rows:
            parts.append(rows_to_arrays([*chain.from_iterable(rows)], interface))
        if columns:
            names = columns[0]
            merged = {n: [*chain.from_iterable(inputs[n] for inputs in columns)] for n in names}
            parts.append(to_arrays(merged, interface))
        parts += tensors
        joined = {name: join([part[name] for part in parts]) for name in parts[0]}
        if tensors and self.signature == RAW:
            check_tensors(joined, interface)
        return _Joined([*chain.from_iterable(order)], self.check(joined))

    def check(self, tensors: Arrays) -> Arrays:
        """Returns the tensors after checking their pictures and texts.

        Raises:
          RequestError: a picture is damaged or too large, all pictures together have too many
            pixels, or a text cannot be parsed and `on_unreadable` is `refuse`.
        """
        max_pixels = self.options.max_pixels
        try:
            measured = measure_pictures(
                tensors,
                self.model.interface,
                are_examples=self._are_examples,
                max_pixels=max_pixels,
            )
        except DataError as error:
            raise RequestError(str(error)) from None
        pixels, limit = sum(measured.pixels) if measured else 0, PICTURES_PER_REQUEST * max_pixels
        if pixels > limit:
            raise RequestError(
                f"the pictures have {pixels:,} pixels in total, expected at most {limit:,} per"
                " request; send fewer pictures per request.",
                413,
            )
        if self.options.on_unreadable is OnUnreadable.REFUSE:
            unreadable = next(iter(self._find_unreadable(tensors)), None)
            if unreadable is not None:
                raise RequestError(
                    f"{unreadable.column!r} of row {unreadable.row} is {unreadable.text!r},"
                    f" expected {unreadable.expected}, or null for a missing value."
                )
        return tensors

    def read(self, inputs: RequestInputs) -> Arrays:
        """Returns the tensors of a request, or raises RequestError for invalid inputs."""
        return self.check(as_tensors(inputs, self.model.interface))

    @property
    def _are_examples(self) -> bool:
        return self.signature == EXAMPLES

    def _find_unreadable(self, tensors: Arrays) -> list[UnreadableValues]:
        return find_unreadable(tensors, self.model.interface, are_examples=self._are_examples)

    def _call_model(self, columns: Arrays) -> Arrays:
        """Returns the outputs of the model, and counts them in the metrics."""
        predict = self.model.predict_examples if self._are_examples else self.model.predict
        outputs = predict(columns)
        self.metrics.count(outputs)
        if self.options.on_unreadable is OnUnreadable.MISSING:
            self.metrics.count_unreadable(self._find_unreadable(columns))
        return outputs

    def _predict(
        self, requests: Sequence[ParsedRows], joined: _Joined, results: dict[int, Any]
    ) -> None:
        """Predicts requests in one batch. If the batch fails, its halves are predicted in turn."""
        try:
            outputs = BatchResults(self._call_model(joined.columns))
        except Exception as error:
            if len(joined.indices) == 1:
                results[joined.indices[0]] = error_reply(error)
                return
        else:
            self._write(requests, joined, outputs, results)
            return
        for half in _halves(joined.indices):
            for part in self._join_halves(requests, half, results):
                self._predict(requests, part, results)

    def _write(
        self,
        requests: Sequence[ParsedRows],
        joined: _Joined,
        outputs: BatchResults,
        results: dict[int, Any],
    ) -> None:
        """Serialises the outputs for each request, and adds the requests to the log."""
        end = 0
        for index in joined.indices:
            start, end = end, end + requests[index].rows
            output = ResultSlice(outputs, slice(start, end))
            results[index] = attempt(_write, requests[index], output)
        if self.log is not None:
            ordered = [requests[index] for index in joined.indices]
            logged = [LoggedRequest(r.request_id.decode(), r.rows, r.start) for r in ordered]
            columns, arrays = joined.columns, outputs.arrays
            self.log.note(
                AnsweredBatch(logged, time.time(), self.model, self.signature, columns, arrays)
            )


_ROWS, _COLUMNS, _TENSORS = range(3)


def _kind_of(inputs: RequestInputs) -> int:
    if isinstance(inputs, list):
        return _ROWS
    return _TENSORS if are_tensors(inputs) else _COLUMNS


def _halves(indices: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    middle = len(indices) // 2
    return indices[:middle], indices[middle:]


def join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows of several requests. Shorter lists are padded with missing values."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    check_size(sum(map(len, parts)), width)
    fill = MISSING.get("string" if parts[0].dtype == object else parts[0].dtype.name, 0)
    joined = np.full((sum(map(len, parts)), width), fill, parts[0].dtype)
    end = 0
    for part in parts:
        joined[end : end + len(part), : part.shape[1]] = part
        end += len(part)
    return joined


def _write(parsed: ParsedRows, output: ResultSlice) -> Any:
    """Returns the response for a whole request, or the serialised outputs for a part of it."""
    response_format = parsed.response_format
    part = response_format.part(output)
    return response_format.reply([part]) if parsed.start is None else part


class Predictions:
    """The prediction service for the versions of one model."""

    def __init__(self, options: ServeOptions, repository: Repository, is_shared: bool) -> None:
        self._options, self._repository = options, repository
        self.metrics = Metrics(
            lambda: self._batcher.waiting_rows,
            lambda: repository.number or 0,
            lambda: repository.failures,
            is_shared=is_shared,
        )
        self.memory = MemoryBudget(options.memory_bytes)
        """The memory limit of all requests in progress."""
        self._executor = ThreadPoolExecutor(thread_name_prefix="model")
        self._batcher = Batcher(
            self._executor,
            self.metrics.batch_rows.observe,
            # One core parses requests and writes responses.
            threads=max(1, count_cores() // options.workers - 1),
            seconds=options.answer_seconds,
            memory=self.memory,
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
        future: ResponseFuture,
        reservation: Reservation | None = None,
    ) -> None:
        """Answers a request, immediately or later.

        Args:
          reservation: the memory reserved for the body, or None if no memory is reserved.
        """
        try:
            path, size = request.path, estimate_memory(request.body)
            number, model = self.find_version(path.name, path.version, path.label)
            if size > SMALL_BYTES:
                self._start(
                    partial(self._answer_large, request, number, model, future.client, reservation),
                    future,
                )
                return
            parsed = read_request(request, number, model.interface, self._options.max_rows)
            call = self._call(model, parsed.signature)
            if parsed.rows > 1 and parsed.rows > self._batcher.max_rows(call):
                self._start(
                    partial(self._answer_parts, parsed, model, request.request_id, future.client),
                    future,
                )
                return
            rows = ParsedRows(
                parsed.inputs, parsed.response_format, request.request_id, parsed.rows
            )
            self._batcher.enqueue(call, rows, parsed.rows, future, size)
        except Exception as error:
            future.set_result(error_reply(error))

    def drop(self, future: ResponseFuture) -> None:
        """Cancels a request whose response is no longer needed."""
        task = self._tasks.pop(future, None)
        if task is not None:
            task.cancel()
        else:
            self._batcher.drop(future)

    def _start(self, respond: Callable[[], Awaitable[Reply]], future: ResponseFuture) -> None:
        """Starts a task that answers a request, with the timeout of all requests."""
        self._tasks[future] = asyncio.create_task(self._finish(respond, future))

    async def _finish(
        self, respond: Callable[[], Awaitable[Reply]], future: ResponseFuture
    ) -> None:
        seconds = self._options.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                response = respond()
                del respond  # Its reference to the body would keep the body in memory.
                reply = await response
        except TimeoutError:
            reply = error_reply(timeout_error(seconds))
        except Exception as error:
            reply = error_reply(error)
        self._tasks.pop(future, None)
        if not future.done():
            future.set_result(reply)

    async def _answer_large(
        self,
        request: PredictionRequest,
        number: int,
        model: Servable,
        client: Hashable,
        reservation: Reservation | None,
    ) -> Reply:
        """Answers a large request, which is parsed in the child process."""
        request_id, size = request.request_id, len(request.body)
        with Reservation(self.memory) as tensor_memory:
            tensor_memory.take(_TENSOR_BYTES_PER_BYTE * size)
            parsed = await self._reader.read(request, number, model.interface)
            del request
            if isinstance(parsed, Reply):
                return parsed
            if reservation is not None:
                reservation.release(reservation.size)
            tensor_memory.release(tensor_memory.size)
            tensor_memory.take(size_of_part(parsed.inputs))
            return await self._answer_parts(parsed, model, request_id, client)

    async def _answer_parts(
        self, parsed: ParsedRequest, model: Servable, request_id: bytes, client: Hashable
    ) -> Reply:
        """Answers a request of many rows in parts. Other requests are answered between parts."""
        loop = asyncio.get_running_loop()
        call, rows = self._call(model, parsed.signature), parsed.rows
        # The whole request is checked first, so that row numbers in errors count from its start.
        tensors = await loop.run_in_executor(self._executor, attempt, call.read, parsed.inputs)
        if isinstance(tensors, Reply):
            return tensors
        parts, start = [], 0
        with Reservation(self.memory) as reservation:
            while start < rows:
                end = min(rows, start + self._batcher.max_rows(call))
                inputs = {column: values[start:end] for column, values in tensors.items()}
                future = AsyncResponseFuture(client)
                part_rows = ParsedRows(
                    inputs, parsed.response_format, request_id, end - start, start
                )
                self._batcher.enqueue(call, part_rows, end - start, future)
                try:
                    part = await future
                finally:
                    self._batcher.drop(future)
                if isinstance(part, Reply):
                    return part
                reservation.take(size_of_part(part))
                if reservation.size > self._options.max_bytes:
                    raise RequestError(
                        f"the response is larger than {self._options.max_bytes:,} bytes: send fewer"
                        " rows per request.",
                        413,
                    )
                parts.append(part)
                start = end
            return await loop.run_in_executor(
                self._executor, attempt, parsed.response_format.reply, parts
            )

    def _call(self, model: Servable, signature: str) -> SignatureCall:
        """Returns the call of a signature. Requests with the same call can be coalesced."""
        call = self._calls.get(signature)
        if call is None or call.model is not model:
            call = SignatureCall(model, signature, self._options, self.metrics, self.log)
            self._calls[signature] = call
        return call
