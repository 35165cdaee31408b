"""Coalescing of requests from many clients into batches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from components.serving.server.reading import MemoryBudget
from components.serving.server.replies import Reply, RequestError, attempt, error_reply

PredictFunction = Callable[[Sequence[Any]], list[Any]]
"""Predicts several requests; returns an answer, or the Reply of an error, for each."""

logger = logging.getLogger(__name__)

BATCH_ROWS = 1024
"""The most rows of a batch."""
_FIRST_DIGITS = 3
FIRST_ROWS = 1 << _FIRST_DIGITS
"""The most rows of a batch for a model that has not been called yet."""
QUEUE_ROWS = 16_384
"""The most rows in the queue; further requests are refused, and clients have to retry."""
ANSWER_SECONDS = 30.0
"""The seconds after which a request times out."""
QUICK_SECONDS = 0.005
"""The most seconds for which a batch may block the event loop."""
LONG_SECONDS = 0.25
"""The most seconds for which a batch should delay other requests. Batches grow beyond it only while
larger ones take less time per row."""
_GROWTH_LIMIT = 1.3
"""The factor below which the time of a batch has to grow, when its rows double, for the time per
row to count as falling."""
SUSPECT_SECONDS = 10.0
"""The seconds for which a client's requests are predicted one by one, after one of them made a
batch fail."""
_MOST_SUSPECTS = 1024
_MOST_DROPPED = 64
"""The number of dropped requests that may stay in the queues, beyond as many as wait."""
_REFUSED = 400
"""The least status of an error response."""
_NEWEST_WEIGHT = 0.2
"""The weight of the newest batch in the moving average of batch times."""


class ResponseFuture(Protocol):
    """A future for the response to a request; hashed by identity."""

    @property
    def client(self) -> Hashable:
        """The client of the request, such as the address of its connection."""

    def done(self) -> bool:
        """Returns whether the response is no longer needed."""

    def set_result(self, result: Any, /) -> None:
        """Sets the response, or the Reply of an error."""


class AsyncResponseFuture(asyncio.Future[Any]):
    """An asyncio future for the response to a request."""

    def __init__(self, client: Hashable) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.client = client


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A request that waits for its response."""

    predict: PredictFunction
    request: Any
    rows: int
    size: int
    """The approximate memory of the request in bytes."""
    answer: ResponseFuture
    due: float
    """The time at which the request times out."""
    is_queued: bool = True


class _Batch(NamedTuple):
    """Coalesced requests, which are predicted together."""

    parts: list[_PendingRequest]
    rows: int
    """The number of rows of all requests."""
    is_suspect: bool

    @property
    def predict(self) -> PredictFunction:
        return self.parts[0].predict

    def answer(self) -> tuple[list[Any], float]:
        """Returns the response or error of each request, and the seconds that the batch took."""
        began = time.perf_counter()
        answers = attempt(self.predict, [one.request for one in self.parts])
        if isinstance(answers, Reply):
            answers = [answers] * len(self.parts)
        return answers, time.perf_counter() - began


@dataclass(slots=True)
class _BatchTimes:
    """The recent times of a model's batches, and the batch size that follows from them."""

    seconds: dict[int, float] = field(default_factory=dict)
    """The moving average of the seconds of a batch, by the binary digits of its number of rows: a
    model that is quick for a row may take seconds for a thousand."""
    most_rows: int = FIRST_ROWS
    """Twice the rows of the largest batch that was short, or that took less time per row than
    smaller ones. The memory of a batch, which cannot be measured, grows with its time."""

    def note(self, rows: int, seconds: float) -> None:
        """Updates the average times and the batch size with a batch."""
        digits = rows.bit_length()
        before = self.seconds.get(digits, seconds)
        self.seconds[digits] = before + _NEWEST_WEIGHT * (seconds - before)
        fine = [d for d in self.seconds if self._may_be_doubled(d)]
        if _FIRST_DIGITS not in self.seconds:
            fine.append(_FIRST_DIGITS)
        self.most_rows = min(BATCH_ROWS, 1 << max(fine, default=0))

    def _may_be_doubled(self, digits: int) -> bool:
        """Returns whether batches of this size are short, or faster per row than smaller ones."""
        seconds = self.seconds[digits]
        if seconds < LONG_SECONDS:
            return True
        smaller = [other for other in self.seconds if other < digits]
        if not smaller:  # There is nothing to compare with, so a batch twice as large is tried.
            return digits == max(self.seconds)
        nearest = max(smaller)
        return seconds < self.seconds[nearest] * _GROWTH_LIMIT ** (digits - nearest)

    def is_quick(self, rows: int) -> bool:
        """Returns whether a batch of this size may run in the event loop."""
        return self.seconds.get(rows.bit_length(), QUICK_SECONDS) < QUICK_SECONDS


class Batcher:
    """Predicts requests at once while the model is idle, and coalesces them while it is busy.

    Requests do not wait when the load is low, and batches grow with the load. Batches that take
    less than `QUICK_SECONDS` run in the thread of the event loop, as switching threads and waiting
    for Python's lock would take longer than a small network. Other batches run in threads of the
    executor, so that requests are read meanwhile.

    A client whose request made a batch fail is a suspect for a while: its requests are predicted
    one by one, alternating with the batches of other clients.
    """

    def __init__(
        self,
        executor: Executor,
        on_batch: Callable[[int], None],
        queue_rows: int = QUEUE_ROWS,
        *,
        threads: int,
        seconds: float = ANSWER_SECONDS,
        room: MemoryBudget | None = None,
    ) -> None:
        """Args:
        executor: runs the model.
        on_batch: a callback for the number of rows of each batch.
        queue_rows: the most rows that may wait.
        threads: the number of batches that run in parallel.
        seconds: the timeout after which a request fails with status 504.
        room: the memory limit of the requests.
        """
        self._executor, self._on_batch, self._queue_rows = executor, on_batch, queue_rows
        self._free = threads
        self._times: WeakKeyDictionary[PredictFunction, _BatchTimes] = WeakKeyDictionary()
        self._is_due_in_loop = False
        """Whether a batch is scheduled in the thread of the event loop."""
        self._queue: deque[_PendingRequest] = deque()
        self._suspect_queue: deque[_PendingRequest] = deque()
        self._is_suspects_turn = False
        self._suspects: dict[Hashable, float] = {}
        """The time until which each suspect client's requests are predicted one by one."""
        self._queued = 0
        """The number of requests in both queues that have not been dropped."""
        self.waiting_rows = 0
        self._seconds = seconds
        self._room = room or MemoryBudget()
        self._due: dict[ResponseFuture, _PendingRequest] = {}
        """The unanswered requests, in the order of their timeouts."""
        self._timer: asyncio.TimerHandle | None = None

    def most_rows(self, predict: PredictFunction) -> int:
        """Returns the most rows of a batch for a model."""
        times = self._times.get(predict)
        return FIRST_ROWS if times is None else times.most_rows

    def enqueue(
        self,
        predict: PredictFunction,
        request: Any,
        rows: int,
        answer: ResponseFuture,
        size: int = 0,
    ) -> None:
        """Queues a request, and starts a batch if the model is idle.

        Args:
          predict: the function that predicts; requests with the same function are coalesced.
          request: the input of the function.
          rows: the number of rows of the request.
          answer: the future of the response, set in the calling thread.
          size: the approximate memory of the request in bytes.

        Raises:
          RequestError: too many rows wait, or the memory limit is reached; the status is 503.
        """
        if self.waiting_rows and self.waiting_rows + rows > self._queue_rows:
            raise RequestError(
                f"the queue is full ({self.waiting_rows} rows): try again later.", 503
            )
        self._room.take(size)
        loop = asyncio.get_running_loop()
        one = _PendingRequest(predict, request, rows, size, answer, loop.time() + self._seconds)
        self._due[answer] = one
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._expire_requests, loop)
        is_suspect = bool(self._suspects) and self._is_suspect(answer.client, loop.time())
        (self._suspect_queue if is_suspect else self._queue).append(one)
        self._queued += 1
        self.waiting_rows += rows
        self._start(loop)

    def drop(self, answer: ResponseFuture) -> None:
        """Cancels a request whose response is no longer needed, unless it is being predicted."""
        one = self._due.pop(answer, None)
        if one is not None:
            self._mark_dropped(one)

    def _mark_dropped(self, pending: _PendingRequest) -> None:
        """Marks a waiting request as dropped; its place in the queue is skipped later."""
        if pending.is_queued:
            pending.is_queued, pending.request = False, None
            self._queued -= 1
            self.waiting_rows -= pending.rows
            self._room.release(pending.size)
            if len(self._queue) + len(self._suspect_queue) > 2 * self._queued + _MOST_DROPPED:
                for queue in (self._queue, self._suspect_queue):
                    alive = [other for other in queue if other.is_queued]
                    queue.clear()
                    queue.extend(alive)

    def _is_suspect(self, client: Hashable, now: float) -> bool:
        until = self._suspects.get(client)
        if until is not None and until < now:
            del self._suspects[client]
        return until is not None and until >= now

    def _suspect(self, client: Hashable, now: float) -> None:
        self._suspects.pop(client, None)
        if len(self._suspects) >= _MOST_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
        self._suspects[client] = now + SUSPECT_SECONDS

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._free and not self._is_due_in_loop and (queue := self._next_queue()):
            times = self._times.get(queue[0].predict)
            if times is not None and times.is_quick(queue[0].rows):
                self._is_due_in_loop = True
                # Runs after the loop has read the requests of other clients.
                loop.call_soon(self._answer_in_loop, loop)
                return
            self._submit(self._take_batch(queue), loop)

    def _submit(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        self._free -= 1
        self._executor.submit(self._answer_in_thread, batch, loop)

    def _next_queue(self) -> deque[_PendingRequest] | None:
        """Returns the queue whose turn it is, without dropped requests at its front."""
        for queue in (self._queue, self._suspect_queue):
            while queue and not queue[0].is_queued:
                queue.popleft()
        if self._suspect_queue and (self._is_suspects_turn or not self._queue):
            return self._suspect_queue
        return self._queue or None

    def _take_batch(self, queue: deque[_PendingRequest]) -> _Batch:
        is_suspect = queue is self._suspect_queue
        self._is_suspects_turn = not is_suspect
        parts = [queue.popleft()]
        rows, most = parts[0].rows, self.most_rows(parts[0].predict)
        while queue and not is_suspect:
            one = queue[0]
            if one.is_queued:
                if one.predict is not parts[0].predict or rows + one.rows > most:
                    break
                parts.append(one)
                rows += one.rows
            queue.popleft()
        for one in parts:
            one.is_queued = False
        self._queued -= len(parts)
        self.waiting_rows -= rows
        self._on_batch(rows)
        return _Batch(parts, rows, is_suspect)

    def _answer_in_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due_in_loop = False
        try:
            if self._free and (queue := self._next_queue()):
                batch = self._take_batch(queue)
                times = self._times.get(batch.predict)
                if times is not None and times.is_quick(batch.rows):
                    self._deliver(batch, *batch.answer(), loop)
                else:  # Meanwhile other requests have joined the batch.
                    self._submit(batch, loop)
        finally:
            self._start(loop)

    def _answer_in_thread(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self._finish_batch, batch, *batch.answer(), loop)

    def _finish_batch(
        self,
        batch: _Batch,
        answers: Sequence[Any],
        seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._free += 1
        self._start(loop)  # First, so that the model does not wait while responses are sent.
        self._deliver(batch, answers, seconds, loop)

    def _deliver(
        self,
        batch: _Batch,
        answers: Sequence[Any],
        seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        may_suspect, is_whole = batch.is_suspect or len(batch.parts) > 1, True
        for one in batch.parts:  # All before the first response, whose transport may fail.
            self._due.pop(one.answer, None)
            self._room.release(one.size)
        for one, answer in zip(batch.parts, answers, strict=True):
            if isinstance(answer, Reply) and answer.status >= _REFUSED:
                is_whole = False
                if may_suspect:
                    self._suspect(one.answer.client, loop.time())
            _resolve(one.answer, answer)
        if is_whole:  # Otherwise the model may not have been called for all rows.
            self._times.setdefault(batch.predict, _BatchTimes()).note(batch.rows, seconds)

    def _expire_requests(self, loop: asyncio.AbstractEventLoop) -> None:
        """Times out requests that are due; one timer for all costs less than one for each."""
        self._timer = None
        for answer, one in list(self._due.items()):
            if self._due.get(answer) is not one:
                continue
            if one.due > loop.time():
                self._timer = loop.call_at(one.due, self._expire_requests, loop)
                return
            self.drop(answer)
            _resolve(answer, error_reply(timeout_error(self._seconds)))


def _resolve(awaited: ResponseFuture, answer: Any) -> None:
    """Sets a response unless the client has gone; logs errors, so that others get theirs."""
    try:
        if not awaited.done():
            awaited.set_result(answer)
    except Exception:
        logger.exception("a response could not be sent to a client")


def timeout_error(seconds: float) -> RequestError:
    """Returns the error for a request that has timed out."""
    return RequestError(f"the prediction took longer than {seconds:g} seconds.", 504)
