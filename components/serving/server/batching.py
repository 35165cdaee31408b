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
"""A function that predicts several requests. It returns the response, or the Reply of an error, for
each request."""

logger = logging.getLogger(__name__)

BATCH_ROWS = 1024
_FIRST_DIGITS = 3
FIRST_ROWS = 1 << _FIRST_DIGITS
"""The most rows of a batch for a model that has not been called yet."""
QUEUE_ROWS = 16_384
"""The most rows in the queue. Further requests are refused, and clients have to retry."""
ANSWER_SECONDS = 30.0
QUICK_SECONDS = 0.005
"""The most seconds for which a batch may block the event loop."""
LONG_SECONDS = 0.25
"""The most seconds for which a batch should delay other requests. A batch may take longer only if
it takes less time per row than smaller batches."""
_GROWTH_LIMIT = 1.3
"""A larger batch takes less time per row if doubling its rows increases its time by less than this
factor."""
SUSPECT_SECONDS = 10.0
"""The seconds for which the requests of a client are predicted one by one, after a request of the
client made a batch fail."""
_MAX_SUSPECTS = 1024
_MAX_DROPPED = 64
"""The number of dropped requests that may remain in the queues, in addition to the number of
waiting requests."""
_MIN_ERROR_STATUS = 400
_NEWEST_WEIGHT = 0.2
"""The weight of the newest batch in the moving average of batch times."""


class ResponseFuture(Protocol):
    """A future for the response to a request. Futures are hashed by identity."""

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
    future: ResponseFuture
    due: float
    is_queued: bool = True


class _Batch(NamedTuple):
    """Coalesced requests, which are predicted together."""

    requests: list[_PendingRequest]
    rows: int
    """The number of rows of all requests."""
    is_suspect: bool

    @property
    def predict(self) -> PredictFunction:
        return self.requests[0].predict

    def answer(self) -> tuple[list[Any], float]:
        """Returns the response or error of each request, and the seconds that the batch took."""
        start = time.perf_counter()
        answers = attempt(self.predict, [pending.request for pending in self.requests])
        if isinstance(answers, Reply):
            answers = [answers] * len(self.requests)
        return answers, time.perf_counter() - start


@dataclass(slots=True)
class _BatchTimes:
    """The recent times of a model's batches, and the batch size derived from these times."""

    seconds: dict[int, float] = field(default_factory=dict)
    """The moving average of the seconds of a batch, by the number of binary digits of its number of
    rows. A model that takes a millisecond for a row may take seconds for a thousand rows."""
    max_rows: int = FIRST_ROWS
    """About twice the rows of the largest batch that was short, or that took less time per row than
    smaller batches. This also limits the memory of a batch, which cannot be measured, as the memory
    grows with the time."""

    def note(self, rows: int, seconds: float) -> None:
        """Updates the average times and the batch size after a batch."""
        digits = rows.bit_length()
        average = self.seconds.get(digits, seconds)
        self.seconds[digits] = average + _NEWEST_WEIGHT * (seconds - average)
        allowed = [d for d in self.seconds if self._may_be_doubled(d)]
        if _FIRST_DIGITS not in self.seconds:
            allowed.append(_FIRST_DIGITS)
        self.max_rows = min(BATCH_ROWS, 1 << max(allowed, default=0))

    def _may_be_doubled(self, digits: int) -> bool:
        """Returns whether batches of a size are short, or faster per row than smaller batches."""
        seconds = self.seconds[digits]
        if seconds < LONG_SECONDS:
            return True
        smaller = [other for other in self.seconds if other < digits]
        if not smaller:  # Without a smaller batch to compare with, a larger batch is tried.
            return digits == max(self.seconds)
        nearest = max(smaller)
        return seconds < self.seconds[nearest] * _GROWTH_LIMIT ** (digits - nearest)

    def is_quick(self, rows: int) -> bool:
        """Returns whether a batch of this size may run in the event loop."""
        return self.seconds.get(rows.bit_length(), QUICK_SECONDS) < QUICK_SECONDS


class Batcher:
    """Predicts requests immediately while the model is idle, and coalesces them while it is busy.

    Requests do not wait when the load is low, and batches grow with the load. Batches that take
    less than `QUICK_SECONDS` run in the thread of the event loop, as switching threads and waiting
    for Python's lock would take longer than a small network. Other batches run in threads of the
    executor, so that the event loop can read other requests at the same time.

    A client whose request made a batch fail is a suspect for `SUSPECT_SECONDS`. The requests of
    suspects are predicted one by one, alternating with the batches of other clients.
    """

    def __init__(
        self,
        executor: Executor,
        on_batch: Callable[[int], None],
        queue_rows: int = QUEUE_ROWS,
        *,
        threads: int,
        seconds: float = ANSWER_SECONDS,
        memory: MemoryBudget | None = None,
    ) -> None:
        """Args:
        executor: runs the model.
        on_batch: a callback for the number of rows of each batch.
        queue_rows: the most rows that may wait.
        threads: the number of batches that run in parallel.
        seconds: the timeout after which a request fails with status 504.
        memory: the memory limit of the requests, or None for no limit.
        """
        self._executor, self._on_batch, self._queue_rows = executor, on_batch, queue_rows
        self._free_threads = threads
        self._times: WeakKeyDictionary[PredictFunction, _BatchTimes] = WeakKeyDictionary()
        self._is_scheduled_in_loop = False
        """Whether a batch is scheduled in the thread of the event loop."""
        self._queue: deque[_PendingRequest] = deque()
        self._suspect_queue: deque[_PendingRequest] = deque()
        self._is_suspects_turn = False
        self._suspects: dict[Hashable, float] = {}
        """The suspect clients, and the time until which each is a suspect."""
        self._queued = 0
        """The number of requests in both queues that have not been dropped."""
        self.waiting_rows = 0
        self._seconds = seconds
        self._memory = memory or MemoryBudget()
        self._unanswered: dict[ResponseFuture, _PendingRequest] = {}
        """The unanswered requests, in the order of their timeouts."""
        self._timer: asyncio.TimerHandle | None = None

    def max_rows(self, predict: PredictFunction) -> int:
        """Returns the most rows of a batch for a model."""
        times = self._times.get(predict)
        return FIRST_ROWS if times is None else times.max_rows

    def enqueue(
        self,
        predict: PredictFunction,
        request: Any,
        rows: int,
        future: ResponseFuture,
        size: int = 0,
    ) -> None:
        """Queues a request, and starts a batch if the model is idle.

        Args:
          predict: the function that predicts. Requests with the same function are coalesced.
          future: the future of the response, which is set in the calling thread.
          size: the approximate memory of the request in bytes.

        Raises:
          RequestError: too many rows wait, or the memory limit is reached. The status is 503.
        """
        if self.waiting_rows and self.waiting_rows + rows > self._queue_rows:
            raise RequestError(
                f"the queue is full ({self.waiting_rows} rows): try again later.", 503
            )
        self._memory.take(size)
        loop = asyncio.get_running_loop()
        pending = _PendingRequest(predict, request, rows, size, future, loop.time() + self._seconds)
        self._unanswered[future] = pending
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._expire_requests, loop)
        is_suspect = bool(self._suspects) and self._is_suspect(future.client, loop.time())
        (self._suspect_queue if is_suspect else self._queue).append(pending)
        self._queued += 1
        self.waiting_rows += rows
        self._start(loop)

    def drop(self, future: ResponseFuture) -> None:
        """Cancels a request whose response is no longer needed, unless it is being predicted."""
        pending = self._unanswered.pop(future, None)
        if pending is not None:
            self._mark_dropped(pending)

    def _mark_dropped(self, pending: _PendingRequest) -> None:
        """Marks a waiting request as dropped. It remains in the queue, and is skipped later."""
        if pending.is_queued:
            pending.is_queued, pending.request = False, None
            self._queued -= 1
            self.waiting_rows -= pending.rows
            self._memory.release(pending.size)
            if len(self._queue) + len(self._suspect_queue) > 2 * self._queued + _MAX_DROPPED:
                for queue in (self._queue, self._suspect_queue):
                    waiting = [other for other in queue if other.is_queued]
                    queue.clear()
                    queue.extend(waiting)

    def _is_suspect(self, client: Hashable, now: float) -> bool:
        until = self._suspects.get(client)
        if until is not None and until < now:
            del self._suspects[client]
        return until is not None and until >= now

    def _add_suspect(self, client: Hashable, now: float) -> None:
        self._suspects.pop(client, None)
        if len(self._suspects) >= _MAX_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
        self._suspects[client] = now + SUSPECT_SECONDS

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        while (
            self._free_threads and not self._is_scheduled_in_loop and (queue := self._next_queue())
        ):
            times = self._times.get(queue[0].predict)
            if times is not None and times.is_quick(queue[0].rows):
                self._is_scheduled_in_loop = True
                # The batch runs after the loop has read the requests of other clients.
                loop.call_soon(self._answer_in_loop, loop)
                return
            self._submit(self._take_batch(queue), loop)

    def _submit(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        self._free_threads -= 1
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
        requests = [queue.popleft()]
        predict, rows = requests[0].predict, requests[0].rows
        max_rows = self.max_rows(predict)
        while queue and not is_suspect:
            pending = queue[0]
            if pending.is_queued:
                if pending.predict is not predict or rows + pending.rows > max_rows:
                    break
                requests.append(pending)
                rows += pending.rows
            queue.popleft()
        for pending in requests:
            pending.is_queued = False
        self._queued -= len(requests)
        self.waiting_rows -= rows
        self._on_batch(rows)
        return _Batch(requests, rows, is_suspect)

    def _answer_in_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled_in_loop = False
        try:
            if self._free_threads and (queue := self._next_queue()):
                batch = self._take_batch(queue)
                times = self._times.get(batch.predict)
                if times is not None and times.is_quick(batch.rows):
                    self._deliver(batch, *batch.answer(), loop)
                else:  # Requests that arrived since have made the batch too large for the loop.
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
        self._free_threads += 1
        self._start(loop)  # The next batch starts before the responses of this batch are sent.
        self._deliver(batch, answers, seconds, loop)

    def _deliver(
        self,
        batch: _Batch,
        answers: Sequence[Any],
        seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        may_suspect, has_errors = batch.is_suspect or len(batch.requests) > 1, False
        # The memory is released before the first response, as sending may fail.
        for pending in batch.requests:
            self._unanswered.pop(pending.future, None)
            self._memory.release(pending.size)
        for pending, answer in zip(batch.requests, answers, strict=True):
            if isinstance(answer, Reply) and answer.status >= _MIN_ERROR_STATUS:
                has_errors = True
                if may_suspect:
                    self._add_suspect(pending.future.client, loop.time())
            _resolve(pending.future, answer)
        if not has_errors:  # After an error, the model may not have predicted all rows.
            self._times.setdefault(batch.predict, _BatchTimes()).note(batch.rows, seconds)

    def _expire_requests(self, loop: asyncio.AbstractEventLoop) -> None:
        """Times out requests that are due. A single timer costs less than a timer per request."""
        self._timer = None
        for future, pending in list(self._unanswered.items()):
            if self._unanswered.get(future) is not pending:
                continue
            if pending.due > loop.time():
                self._timer = loop.call_at(pending.due, self._expire_requests, loop)
                return
            self.drop(future)
            _resolve(future, error_reply(timeout_error(self._seconds)))


def _resolve(future: ResponseFuture, answer: Any) -> None:
    """Sets a response unless the client has disconnected.

    Errors are logged, so that the other clients of the batch still get their responses.
    """
    try:
        if not future.done():
            future.set_result(answer)
    except Exception:
        logger.exception("a response could not be sent to a client")


def timeout_error(seconds: float) -> RequestError:
    """Returns the error for a request that has timed out."""
    return RequestError(f"the prediction took longer than {seconds:g} seconds.", 504)
