"""Requests for predictions answered: read, asked together with others, and written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from components.serving.model import Servable
from components.serving.request_log.gathering import Answered, LoggedRequest
from components.serving.request_log.log import RequestLog
from components.serving.requests import Arrays
from components.serving.server.batching import Awaited, Batcher, FutureAnswer, late
from components.serving.server.metrics import Metrics
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.layouts import Layouts
from components.serving.server.reading import (
    AnswerForm,
    PredictionRequest,
    ReadRequest,
    read_request,
    size_of_part,
)
from components.serving.server.reading_process import LargeReader
from components.serving.server.replies import Reply, RequestError, refusal
from components.serving.server.repository import Repository
from components.serving.server.room import SMALL_BYTES, Held, Room, memory_of
from components.serving.server.together import (
    RequestAnswer,
    RequestInputs,
    SignatureCall,
    to_tensors,
)
from components.serving.settings import OnUnreadable
from trainer_module.machine import count_cores

_TENSORS_OF_BODY = 2
"""The room that a large request takes for its tensors before they are known, in bodies."""


class _Asked(NamedTuple):
    """A request that has been read, or some of its rows."""

    inputs: RequestInputs
    form: AnswerForm
    name: bytes
    start: int | None
    """The place of the first row; None where it is all of them."""


@dataclass(frozen=True, eq=False)
class _Replies:
    """Asks a model for several requests, and writes what is sent to each client."""

    call: SignatureCall
    log: RequestLog | None

    def __call__(self, requests: Sequence[_Asked]) -> list[Any]:
        answers = self.call([one.inputs for one in requests])
        if self.log is not None:
            self._note(self.log, requests, answers)
        return [
            answer if isinstance(answer, Reply) else _write(one, answer)
            for one, answer in zip(requests, answers, strict=True)
        ]

    def _note(
        self,
        log: RequestLog,
        requests: Sequence[_Asked],
        answers: Sequence[RequestAnswer | Reply],
    ) -> None:
        """Has what was answered written down, in the order of the rows that were asked for."""
        parts: dict[int, list[tuple[RequestAnswer, _Asked]]] = {}
        for one, answer in zip(requests, answers, strict=True):
            if not isinstance(answer, Reply):
                parts.setdefault(id(answer.of), []).append((answer, one))
        for part in parts.values():
            part.sort(key=lambda pair: pair[0].rows.start)
            names = [
                LoggedRequest(one.name.decode(), answer.rows.stop - answer.rows.start, one.start)
                for answer, one in part
            ]
            of = part[0][0].of
            log.note(
                Answered(
                    names, time.time(), self.call.model, self.call.signature, of.columns, of.arrays
                )
            )


def _write(asked: _Asked, answer: RequestAnswer) -> Any:
    """The reply, or what is written of some rows; or a reply that says why there is neither."""
    try:
        part = asked.form.part(answer)
        return asked.form.reply([part]) if asked.start is None else part
    except Exception as error:
        return refusal(error)


def _to_tensors(read: ReadRequest, call: SignatureCall) -> Arrays | Reply:
    """The tensors of a whole request, so that what is wrong with a row is said with its place."""
    try:
        return call.checked(to_tensors(read.inputs, call.model.interface))
    except Exception as error:
        return refusal(error)


def _join(form: AnswerForm, parts: Sequence[Any]) -> Reply:
    try:
        return form.reply(parts)
    except Exception as error:
        return refusal(error)


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
        self._layouts = Layouts()
        self._by_signature: dict[str, _Replies] = {}
        self.log = RequestLog(options.log, self.metrics.registry) if options.log else None

    def named(
        self, name: str, version: str | None = None, label: str | None = None
    ) -> tuple[int, Servable]:
        """The version that a path names, and its number.

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
            read = read_request(
                request, number, model.interface, self._layouts, self._options.max_rows
            )
            replies = self._replies(model, read.signature)
            if read.rows > 1 and read.rows > self._batcher.most_rows(replies):
                self._start(
                    partial(self._answer_parts, read, model, request.name, answer.client), answer
                )
                return
            asked = _Asked(read.inputs, read.form, request.name, None)
            self._batcher.ask(replies, asked, read.rows, answer, size)
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
        with self.room.held() as more:
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
        replies, rows = self._replies(model, read.signature), read.rows
        tensors = await loop.run_in_executor(self._executor, _to_tensors, read, replies.call)
        if isinstance(tensors, Reply):
            return tensors
        parts, start = [], 0
        with self.room.held() as held:
            while start < rows:
                end = min(rows, start + self._batcher.most_rows(replies))
                some = {column: values[start:end] for column, values in tensors.items()}
                answer = FutureAnswer[Any](client)
                asked = _Asked(some, read.form, name, start)
                self._batcher.ask(replies, asked, end - start, answer)
                try:
                    part = await answer.future
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
            return await loop.run_in_executor(self._executor, _join, read.form, parts)

    def _replies(self, model: Servable, signature: str) -> _Replies:
        """The same one for requests that can be asked together."""
        found = self._by_signature.get(signature)
        if found is None or found.call.model is not model:
            most = self._options.max_pixels
            counts = self._options.on_unreadable is OnUnreadable.MISSING
            told = self.metrics.count_unreadable if counts else None
            call = SignatureCall(model, signature, self.metrics.count, most, told)
            found = self._by_signature[signature] = _Replies(call, self.log)
        return found
