"""Requests of many clients, asked of the model together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from pipeline.serving.server.errors import RequestError

Ask = Callable[[Sequence[Any]], list[Any]]
"""Gives an answer, or the exception that it failed by, for each of several requests."""

BATCH_ROWS = 1024
"""Rows that are asked together, unless one request alone has more."""
QUEUE_ROWS = 16_384
"""Rows that may wait; then it is better that clients come again later."""
ANSWER_SECONDS = 30.0
"""After which a request is given up."""
QUICK_SECONDS = 0.005
"""For which requests may wait to be read while a batch is answered."""
_NEWEST = 0.2
"""What the newest batch counts among those whose time is known."""


class Awaited(Protocol):
    """What will have an answer, or what it failed by, such as a future; hashed by identity."""

    def done(self) -> bool:
        """Whether nothing is waited for any more."""

    def set_result(self, result: Any, /) -> None:
        """Takes the answer."""

    def set_exception(self, exception: Any, /) -> None:
        """Takes what it failed by."""


class _Waiting(NamedTuple):
    """A request that waits for its answer."""

    ask: Ask
    request: Any
    rows: int
    answer: Awaited


class _Batch(NamedTuple):
    """Requests that are asked together."""

    parts: list[_Waiting]
    rows: int
    """Of all of them."""

    @property
    def ask(self) -> Ask:
        return self.parts[0].ask

    def answer(self) -> tuple[list[Any], float]:
        """What each is answered, or what it failed by, and the seconds that it took."""
        began = time.perf_counter()
        answers: list[Any]
        try:
            answers = self.ask([one.request for one in self.parts])
        except BaseException as error:
            answers = [error] * len(self.parts)
        return answers, time.perf_counter() - began


class Batcher:
    """Asks at once while nothing else is asked, and lets requests gather meanwhile.

    So nobody waits when there is little to do, and batches grow with the load. A model that answers
    about so many rows within `QUICK_SECONDS` is asked in the thread of the event loop: to hand a
    batch to another thread and to wait there for Python's lock takes longer than a small network
    does. Other batches are asked in threads of the executor, so that requests are read meanwhile.
    """

    def __init__(
        self,
        executor: Executor,
        told: Callable[[int], None],
        queue_rows: int = QUEUE_ROWS,
        *,
        threads: int,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Args:
        executor: runs the model.
        told: is told how many rows are asked together.
        queue_rows: that may wait.
        threads: batches that are asked for side by side.
        seconds: after which a request fails with status 504.
        """
        self._executor, self._told, self._queue_rows = executor, told, queue_rows
        self._free = threads
        self._taken: WeakKeyDictionary[Ask, dict[int, float]] = WeakKeyDictionary()
        """Seconds that answers to a batch took of late, by the binary digits of its rows: what is
        quick for a row may take seconds for a thousand."""
        self._is_due_here = False
        """The event loop is going to answer a batch in its thread."""
        self._queue: deque[_Waiting] = deque()
        self.waiting_rows = 0
        self._seconds = seconds
        self._due: dict[Awaited, float] = {}
        """When requests that have no answer yet are given up, in the order of that."""
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, ask: Ask, request: Any, rows: int, answer: Awaited) -> None:
        """Has a request answered.

        Args:
          ask: the same for requests that can be asked together.
          request: what it is given.
          rows: of the request.
          answer: is told, in the thread that calls this.

        Raises:
          RequestError: too many rows wait, with status 503.
        """
        if self._queue and self.waiting_rows + rows > self._queue_rows:
            raise RequestError(f"{self.waiting_rows} rows wait already: come again later.", 503)
        loop = asyncio.get_running_loop()
        self._due[answer] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._give_up, loop)
        self._queue.append(_Waiting(ask, request, rows, answer))
        self.waiting_rows += rows
        self._start(loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._free and self._queue:
            if self._is_quick(self._queue[0].ask, self._queue[0].rows):
                if not self._is_due_here:
                    self._is_due_here = True
                    # When the loop has read what other clients have sent.
                    loop.call_soon(self._answer_here, loop)
                return
            self._submit(self._next(), loop)

    def _submit(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        self._free -= 1
        self._executor.submit(self._answer_in_thread, batch, loop)

    def _is_quick(self, ask: Ask, rows: int) -> bool:
        taken = self._taken.get(ask, {})
        return taken.get(rows.bit_length(), QUICK_SECONDS) < QUICK_SECONDS

    def _next(self) -> _Batch:
        parts = [self._queue.popleft()]
        rows = parts[0].rows
        while self._queue and self._queue[0].ask is parts[0].ask:
            if rows + self._queue[0].rows > BATCH_ROWS:
                break
            parts.append(self._queue.popleft())
            rows += parts[-1].rows
        self.waiting_rows -= rows
        self._told(rows)
        return _Batch(parts, rows)

    def _answer_here(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due_here = False
        try:
            if self._free and self._queue:
                batch = self._next()
                if self._is_quick(batch.ask, batch.rows):
                    self._deliver(batch, *batch.answer())
                else:  # Others have come meanwhile.
                    self._submit(batch, loop)
        finally:
            self._start(loop)

    def _answer_in_thread(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self._take_up, batch, *batch.answer(), loop)

    def _take_up(
        self,
        batch: _Batch,
        answers: Sequence[Any],
        seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._free += 1
        self._start(loop)  # First, so that the model does not wait for what is sent now.
        self._deliver(batch, answers, seconds)

    def _deliver(self, batch: _Batch, answers: Sequence[Any], seconds: float) -> None:
        taken, digits = self._taken.setdefault(batch.ask, {}), batch.rows.bit_length()
        before = taken.get(digits, seconds)
        taken[digits] = before + _NEWEST * (seconds - before)
        for one, answer in zip(batch.parts, answers, strict=True):
            self._due.pop(one.answer, None)
            if one.answer.done():  # Whoever asked has gone.
                continue
            if isinstance(answer, BaseException):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has requests fail that are due; one timer for all costs less than one for each."""
        self._timer = None
        for answer, due in list(self._due.items()):
            if due > loop.time():
                self._timer = loop.call_at(due, self._give_up, loop)
                return
            del self._due[answer]
            if not answer.done():
                said = f"there was no answer within {self._seconds:g} seconds."
                answer.set_exception(RequestError(said, 504))
