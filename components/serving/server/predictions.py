"""Requests for predictions answered: read, asked of the model together with others, and written."""

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
from components.serving.request_log.rows import Answered, LoggedRequest
from components.serving.requests import (
    EXAMPLES,
    MISSING,
    RAW,
    Arrays,
    UnreadableValues,
    find_unreadable,
    measure_pictures,
)
from components.serving.server.batching import Awaited, Batcher, FutureAnswer, late
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
    Held,
    PredictionRequest,
    ReadRequest,
    Room,
    memory_of,
    read_request,
)
from components.serving.server.reading_process import LargeReader
from components.serving.server.replies import (
    AnswerForm,
    BatchAnswers,
    Reply,
    RequestAnswer,
    RequestError,
    attempt,
    refusal,
    size_of_part,
)
from components.serving.server.repository import Repository
from components.serving.settings import OnUnreadable
from trainer_module.errors import DataError
from trainer_module.machine import count_cores

PICTURES_AT_ONCE = 4
"""How many of the largest pictures a request may have; or as many pixels of smaller ones."""
_TENSORS_OF_BODY = 2
"""The room that a large request takes for its tensors before they are known, in bodies."""


class Asked(NamedTuple):
    """A request that has been read, or some of its rows."""

    inputs: RequestInputs
    form: AnswerForm
    name: bytes
    rows: int
    start: int | None = None
    """The place of the first row; None where it is all of them."""


class _Joined(NamedTuple):
    """Requests whose tensors are together."""

    places: Sequence[int]
    """Of the requests, in the order of their rows."""
    columns: Arrays


@dataclass(frozen=True, eq=False)
class SignatureCall:
    """A signature of a model, which several requests may ask together."""

    model: Servable
    signature: str
    options: ServeOptions
    metrics: Metrics
    log: RequestLog | None = None

    def __call__(self, asked: Sequence[Asked]) -> list[Any]:
        """What is written for each request, or the Reply that refuses it.

        Those that are wrong are found before the model is asked, which then is for all others at
        once, if these are not too large together.
        """
        found: dict[int, Any] = {}
        parts = self._join_halves(asked, range(len(asked)), found)
        if len(parts) > 1 and found:
            good = [place for place in range(len(asked)) if place not in found]
            parts = self._join_halves(asked, good, found)
        for part in parts:
            self._ask(asked, part, found)
        return [found[place] for place in range(len(asked))]

    def _join_halves(
        self, asked: Sequence[Asked], places: Sequence[int], found: dict[int, Any]
    ) -> list[_Joined]:
        """Returns the tensors of all these requests, of halves, or of halves of these, as they can
        be had.

        What a request is refused with goes to `found`.
        """
        try:
            return [self._join(asked, places)]
        except Exception as error:
            if len(places) == 1:
                found[places[0]] = refusal(error)
                return []
        return [one for half in _halves(places) for one in self._join_halves(asked, half, found)]

    def _join(self, asked: Sequence[Asked], places: Sequence[int]) -> _Joined:
        """Returns the tensors of several requests.

        Rows of JSON become tensors all at once, and so do columns.
        """
        order: tuple[list[int], ...] = [], [], []
        of_kind: tuple[list[Any], ...] = [], [], []
        for place in places:
            kind = _kind_of(asked[place].inputs)
            order[kind].append(place)
            of_kind[kind].append(asked[place].inputs)
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
        return _Joined([*chain.from_iterable(order)], self.checked(joined))

    def checked(self, tensors: Arrays) -> Arrays:
        """Raises RequestError for tensors with a picture that is damaged or too large.

        So it does where all of them together would keep others waiting for long, and for texts that
        the model cannot read where these are refused.
        """
        most = self.options.max_pixels
        try:
            measured = measure_pictures(
                tensors, self.model.interface, are_examples=self._are_examples, most=most
            )
        except DataError as error:
            raise RequestError(str(error)) from None
        pixels, most = sum(measured.pixels) if measured else 0, PICTURES_AT_ONCE * most
        if pixels > most:
            raise RequestError(
                f"the pictures have {pixels:,} pixels together: at most {most:,} are decoded for a "
                "request; send fewer at once.",
                413,
            )
        if self.options.on_unreadable is OnUnreadable.REFUSE:
            for one in self._find_unreadable(tensors):
                raise RequestError(
                    f"{one.column!r} of row {one.row} is {one.text!r}, expected {one.right}, or"
                    " null where it is missing."
                )
        return tensors

    def read(self, inputs: RequestInputs) -> Arrays:
        """Returns the tensors of a request; raises RequestError where the model does not take
        them.
        """
        return self.checked(as_tensors(inputs, self.model.interface))

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

    def _ask(self, asked: Sequence[Asked], joined: _Joined, found: dict[int, Any]) -> None:
        """Has requests answered, or halves of them, and of these, where the model fails."""
        try:
            answers = BatchAnswers(self._answer(joined.columns))
        except Exception as error:
            if len(joined.places) == 1:
                found[joined.places[0]] = refusal(error)
                return
        else:
            self._write(asked, joined, answers, found)
            return
        for half in _halves(joined.places):
            for part in self._join_halves(asked, half, found):
                self._ask(asked, part, found)

    def _write(
        self,
        asked: Sequence[Asked],
        joined: _Joined,
        answers: BatchAnswers,
        found: dict[int, Any],
    ) -> None:
        """Has what was answered written down, and finds what is sent to each client."""
        end = 0
        for place in joined.places:
            start, end = end, end + asked[place].rows
            answer = RequestAnswer(answers, slice(start, end))
            found[place] = attempt(_write, asked[place], answer)
        if self.log is not None:
            ones = [asked[place] for place in joined.places]
            requests = [LoggedRequest(one.name.decode(), one.rows, one.start) for one in ones]
            columns, arrays = joined.columns, answers.arrays
            self.log.note(
                Answered(requests, time.time(), self.model, self.signature, columns, arrays)
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
    """Rows of several requests; lists are as long as the longest."""
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


def _write(asked: Asked, answer: RequestAnswer) -> Any:
    """Returns the reply, or what is written of some rows."""
    part = asked.form.part(answer)
    return asked.form.reply([part]) if asked.start is None else part


class Predictions:
    """Predictions by the versions of one model."""

    def __init__(self, options: ServeOptions, repository: Repository, is_shared: bool) -> None:
        """Args:
        options: checked.
        repository: of the versions.
        is_shared: whether this is one of several workers.
        """
        self._options, self._repository = options, repository
        self.metrics = Metrics(
            lambda: self._batcher.waiting_rows,
            lambda: repository.number or 0,
            lambda: repository.failures,
            is_shared=is_shared,
        )
        self.room = Room(options.memory_bytes)
        """For all requests under way."""
        self._executor = ThreadPoolExecutor(thread_name_prefix="model")
        self._batcher = Batcher(
            self._executor,
            self.metrics.batch_rows.observe,
            # One core reads requests and writes answers.
            threads=max(1, count_cores() // options.workers - 1),
            seconds=options.answer_seconds,
            room=self.room,
        )
        self._reader = LargeReader(options)
        self._tasks: dict[Awaited, asyncio.Task[None]] = {}
        """Those that answer large requests."""
        self._calls: dict[str, SignatureCall] = {}
        self.log = RequestLog(options.log, self.metrics.registry) if options.log else None

    def named(
        self, name: str, version: str | None = None, label: str | None = None
    ) -> tuple[int, Servable]:
        """Returns the version that a path names, and its number.

        Raises:
          RequestError: there is none, or none yet.
        """
        if name != self._options.name:
            raise RequestError(
                f"there is no model {name!r} here; {self._options.name!r} is served.", 404
            )
        return self._repository.find(version, label)

    def answer(self, request: PredictionRequest, answer: Awaited, held: Held | None = None) -> None:
        """Has a request answered, now or later.

        Args:
          request: all of it.
          answer: takes a Reply.
          held: the room that its body has taken, if it has.
        """
        try:
            path, size = request.path, memory_of(request.body)
            number, model = self.named(path.name, path.version, path.label)
            if size > SMALL_BYTES:
                self._start(
                    partial(self._answer_large, request, number, model, answer.client, held), answer
                )
                return
            read = read_request(request, number, model.interface, self._options.max_rows)
            call = self._call(model, read.signature)
            if read.rows > 1 and read.rows > self._batcher.most_rows(call):
                self._start(
                    partial(self._answer_parts, read, model, request.name, answer.client), answer
                )
                return
            asked = Asked(read.inputs, read.form, request.name, read.rows)
            self._batcher.ask(call, asked, read.rows, answer, size)
        except Exception as error:
            answer.set_result(refusal(error))

    def drop(self, answer: Awaited) -> None:
        """Has a request not answered any more, as nobody waits for that."""
        task = self._tasks.pop(answer, None)
        if task is not None:
            task.cancel()
        else:
            self._batcher.drop(answer)

    def _start(self, answering: Callable[[], Awaitable[Reply]], answer: Awaited) -> None:
        """Has a request answered by a task of its own, in the usual time."""
        self._tasks[answer] = asyncio.create_task(self._finish(answering, answer))

    async def _finish(self, answering: Callable[[], Awaitable[Reply]], answer: Awaited) -> None:
        seconds = self._options.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                begun = answering()
                del answering  # It holds the body.
                reply = await begun
        except TimeoutError:
            reply = refusal(late(seconds))
        except Exception as error:
            reply = refusal(error)
        self._tasks.pop(answer, None)
        if not answer.done():
            answer.set_result(reply)

    async def _answer_large(
        self,
        request: PredictionRequest,
        number: int,
        model: Servable,
        client: Hashable,
        held: Held | None,
    ) -> Reply:
        """Answers a request that takes too long to read for others to wait meanwhile."""
        name, size = request.name, len(request.body)
        with Held(self.room) as more:
            more.take(_TENSORS_OF_BODY * size)
            read = await self._reader.read(request, number, model.interface)
            del request
            if isinstance(read, Reply):
                return read
            if held is not None:
                held.give_back(held.size)
            more.give_back(more.size)
            more.take(size_of_part(read.inputs))
            return await self._answer_parts(read, model, name, client)

    async def _answer_parts(
        self, read: ReadRequest, model: Servable, name: bytes, client: Hashable
    ) -> Reply:
        """Answers a request of many rows by parts, between which others are answered."""
        loop = asyncio.get_running_loop()
        call, rows = self._call(model, read.signature), read.rows
        # Of the whole request, so that what is wrong with a row is said with its place.
        tensors = await loop.run_in_executor(self._executor, attempt, call.read, read.inputs)
        if isinstance(tensors, Reply):
            return tensors
        parts, start = [], 0
        with Held(self.room) as held:
            while start < rows:
                end = min(rows, start + self._batcher.most_rows(call))
                some = {column: values[start:end] for column, values in tensors.items()}
                answer = FutureAnswer(client)
                asked = Asked(some, read.form, name, end - start, start)
                self._batcher.ask(call, asked, end - start, answer)
                try:
                    part = await answer
                finally:
                    self._batcher.drop(answer)
                if isinstance(part, Reply):
                    return part
                held.take(size_of_part(part))
                if held.size > self._options.max_bytes:
                    raise RequestError(
                        f"the answer is larger than {self._options.max_bytes:,} bytes: send fewer"
                        " rows at once.",
                        413,
                    )
                parts.append(part)
                start = end
            return await loop.run_in_executor(self._executor, attempt, read.form.reply, parts)

    def _call(self, model: Servable, signature: str) -> SignatureCall:
        """Returns the same one for requests that can be asked together."""
        found = self._calls.get(signature)
        if found is None or found.model is not model:
            found = SignatureCall(model, signature, self._options, self.metrics, self.log)
            self._calls[signature] = found
        return found
