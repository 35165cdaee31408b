"""Requests of many clients, asked of the model together."""

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

from components.serving.server.reading import Room
from components.serving.server.replies import Reply, RequestError, attempt, refusal

Ask = Callable[[Sequence[Any]], list[Any]]
"""Gives an answer, or the Reply that refuses it, for each of several requests."""

logger = logging.getLogger(__name__)

BATCH_ROWS = 1024
"""Rows that are asked together at most."""
_FIRST_DIGITS = 3
FIRST_ROWS = 1 << _FIRST_DIGITS
"""Rows that are asked together of a model that has not been asked yet."""
QUEUE_ROWS = 16_384
"""Rows that may wait; then it is better that clients come again later."""
ANSWER_SECONDS = 30.0
"""After which a request is given up."""
QUICK_SECONDS = 0.005
"""For which requests may wait to be read while a batch is answered."""
LONG_SECONDS = 0.25
"""For which others may wait while a batch is answered: larger ones are not asked of a model that
takes longer, unless it takes less for each row then."""
_STILL_FALLS = 1.3
"""The time for a row does where twice the rows take less than so many times as long."""
SUSPECT_SECONDS = 10.0
"""For which a client's requests are asked one by one after one of them made a batch fail."""
_MOST_SUSPECTS = 1024
_FEW = 64
"""Requests that were given up may stay in the queues beyond as many as wait."""
_REFUSED = 400
"""The least status of a refusal."""
_NEWEST = 0.2
"""What the newest batch counts among those whose time is known."""


class Awaited(Protocol):
    """What will have an answer; hashed by identity."""

    @property
    def client(self) -> Hashable:
        """Whoever asks, such as the address of a connection."""

    def done(self) -> bool:
        """Returns whether nothing is waited for any more."""

    def set_result(self, result: Any, /) -> None:
        """Takes the answer, or the Reply that says why there is none."""


class FutureAnswer(asyncio.Future[Any]):
    """What a coroutine waits for."""

    def __init__(self, client: Hashable) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.client = client


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for its answer."""

    ask: Ask
    request: Any
    rows: int
    size: int
    """Bytes that it takes, about."""
    answer: Awaited
    due: float
    """When it is given up."""
    is_queued: bool = True


class _Batch(NamedTuple):
    """Requests that are asked together."""

    parts: list[_Waiting]
    rows: int
    """Of all of them."""
    is_suspect: bool

    @property
    def ask(self) -> Ask:
        return self.parts[0].ask

    def answer(self) -> tuple[list[Any], float]:
        """What each is answered, or refused with, and the seconds that it took."""
        began = time.perf_counter()
        answers = attempt(self.ask, [one.request for one in self.parts])
        if isinstance(answers, Reply):
            answers = [answers] * len(self.parts)
        return answers, time.perf_counter() - began


@dataclass(slots=True)
class _Pace:
    """How long batches of a model take, and so how large they may be."""

    seconds: dict[int, float] = field(default_factory=dict)
    """That answers to a batch took of late, by the binary digits of its rows: what is quick for a
    row may take seconds for a thousand."""
    most_rows: int = FIRST_ROWS
    """Twice the largest batch of those that did not take long, or less for each row than smaller
    ones. The memory that a model takes for a batch, which it does not tell, grows with its time."""

    def note(self, rows: int, seconds: float) -> None:
        """Learns from a batch."""
        digits = rows.bit_length()
        before = self.seconds.get(digits, seconds)
        self.seconds[digits] = before + _NEWEST * (seconds - before)
        fine = [d for d in self.seconds if self._may_be_doubled(d)]
        if _FIRST_DIGITS not in self.seconds:
            fine.append(_FIRST_DIGITS)
        self.most_rows = min(BATCH_ROWS, 1 << max(fine, default=0))

    def _may_be_doubled(self, digits: int) -> bool:
        """Returns whether batches of so many rows are short, or still save time, as far as is
        known.
        """
        seconds = self.seconds[digits]
        if seconds < LONG_SECONDS:
            return True
        smaller = [other for other in self.seconds if other < digits]
        if not smaller:  # Then a batch twice as large is tried.
            return digits == max(self.seconds)
        nearest = max(smaller)
        return seconds < self.seconds[nearest] * _STILL_FALLS ** (digits - nearest)

    def is_quick(self, rows: int) -> bool:
        return self.seconds.get(rows.bit_length(), QUICK_SECONDS) < QUICK_SECONDS


class Batcher:
    """Asks at once while nothing else is asked, and lets requests gather meanwhile.

    So nobody waits when there is little to do, and batches grow with the load. A model that answers
    about so many rows within `QUICK_SECONDS` is asked in the thread of the event loop: to hand a
    batch to another thread and to wait there for Python's lock takes longer than a small network
    does. Other batches are asked in threads of the executor, so that requests are read meanwhile.

    A client whose request made a batch fail is a suspect for a while: its requests are asked one by
    one, in turn with the batches of others.
    """

    def __init__(
        self,
        executor: Executor,
        told: Callable[[int], None],
        queue_rows: int = QUEUE_ROWS,
        *,
        threads: int,
        seconds: float = ANSWER_SECONDS,
        room: Room | None = None,
    ) -> None:
        """Args:
        executor: runs the model.
        told: is told how many rows are asked together.
        queue_rows: that may wait.
        threads: batches that are asked for side by side.
        seconds: after which a request fails with status 504.
        room: for the requests.
        """
        self._executor, self._told, self._queue_rows = executor, told, queue_rows
        self._free = threads
        self._paces: WeakKeyDictionary[Ask, _Pace] = WeakKeyDictionary()
        self._is_due_here = False
        """The event loop is going to answer a batch in its thread."""
        self._queue: deque[_Waiting] = deque()
        self._suspect_queue: deque[_Waiting] = deque()
        self._is_suspects_turn = False
        self._suspects: dict[Hashable, float] = {}
        """Clients whose requests made batches fail, and until when they are asked alone."""
        self._queued = 0
        """Requests in both queues that have not been given up."""
        self.waiting_rows = 0
        self._seconds = seconds
        self._room = room or Room()
        self._due: dict[Awaited, _Waiting] = {}
        """Requests that have no answer yet, in the order in which they are given up."""
        self._timer: asyncio.TimerHandle | None = None

    def most_rows(self, ask: Ask) -> int:
        """Rows that may be asked together."""
        pace = self._paces.get(ask)
        return FIRST_ROWS if pace is None else pace.most_rows

    def ask(self, ask: Ask, request: Any, rows: int, answer: Awaited, size: int = 0) -> None:
        """Has a request answered.

        Args:
          ask: the same for requests that can be asked together.
          request: what it is given.
          rows: of the request.
          answer: is told, in the thread that calls this.
          size: bytes that the request takes, about.

        Raises:
          RequestError: too many rows wait, or too much is under way, with status 503.
        """
        if self.waiting_rows and self.waiting_rows + rows > self._queue_rows:
            raise RequestError(f"{self.waiting_rows} rows wait already: come again later.", 503)
        self._room.take(size)
        loop = asyncio.get_running_loop()
        one = _Waiting(ask, request, rows, size, answer, loop.time() + self._seconds)
        self._due[answer] = one
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._give_up, loop)
        is_suspect = bool(self._suspects) and self._is_suspect(answer.client, loop.time())
        (self._suspect_queue if is_suspect else self._queue).append(one)
        self._queued += 1
        self.waiting_rows += rows
        self._start(loop)

    def drop(self, answer: Awaited) -> None:
        """Forgets a request that nobody waits for any more, unless it is being answered."""
        one = self._due.pop(answer, None)
        if one is not None:
            self._forget(one)

    def _forget(self, one: _Waiting) -> None:
        """Has a request that waits not asked: its place in the queue is passed over."""
        if one.is_queued:
            one.is_queued, one.request = False, None
            self._queued -= 1
            self.waiting_rows -= one.rows
            self._room.give_back(one.size)
            if len(self._queue) + len(self._suspect_queue) > 2 * self._queued + _FEW:
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
        while self._free and not self._is_due_here and (queue := self._next_queue()):
            pace = self._paces.get(queue[0].ask)
            if pace is not None and pace.is_quick(queue[0].rows):
                self._is_due_here = True
                # When the loop has read what other clients have sent.
                loop.call_soon(self._answer_here, loop)
                return
            self._submit(self._next(queue), loop)

    def _submit(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        self._free -= 1
        self._executor.submit(self._answer_in_thread, batch, loop)

    def _next_queue(self) -> deque[_Waiting] | None:
        """Returns the queue whose turn it is, beginning with a request that is still waited for."""
        for queue in (self._queue, self._suspect_queue):
            while queue and not queue[0].is_queued:
                queue.popleft()
        if self._suspect_queue and (self._is_suspects_turn or not self._queue):
            return self._suspect_queue
        return self._queue or None

    def _next(self, queue: deque[_Waiting]) -> _Batch:
        is_suspect = queue is self._suspect_queue
        self._is_suspects_turn = not is_suspect
        parts = [queue.popleft()]
        rows, most = parts[0].rows, self.most_rows(parts[0].ask)
        while queue and not is_suspect:
            one = queue[0]
            if one.is_queued:
                if one.ask is not parts[0].ask or rows + one.rows > most:
                    break
                parts.append(one)
                rows += one.rows
            queue.popleft()
        for one in parts:
            one.is_queued = False
        self._queued -= len(parts)
        self.waiting_rows -= rows
        self._told(rows)
        return _Batch(parts, rows, is_suspect)

    def _answer_here(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due_here = False
        try:
            if self._free and (queue := self._next_queue()):
                batch = self._next(queue)
                pace = self._paces.get(batch.ask)
                if pace is not None and pace.is_quick(batch.rows):
                    self._deliver(batch, *batch.answer(), loop)
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
        self._deliver(batch, answers, seconds, loop)

    def _deliver(
        self,
        batch: _Batch,
        answers: Sequence[Any],
        seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        may_suspect, is_whole = batch.is_suspect or len(batch.parts) > 1, True
        for one in batch.parts:  # All before any is told, whose transport may fail.
            self._due.pop(one.answer, None)
            self._room.give_back(one.size)
        for one, answer in zip(batch.parts, answers, strict=True):
            if isinstance(answer, Reply) and answer.status >= _REFUSED:
                is_whole = False
                if may_suspect:
                    self._suspect(one.answer.client, loop.time())
            _tell(one.answer, answer)
        if is_whole:  # Of what is refused the model may not have been asked at all.
            self._paces.setdefault(batch.ask, _Pace()).note(batch.rows, seconds)

    def _give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has requests fail that are due; one timer for all costs less than one for each."""
        self._timer = None
        for answer, one in list(self._due.items()):
            if self._due.get(answer) is not one:
                continue
            if one.due > loop.time():
                self._timer = loop.call_at(one.due, self._give_up, loop)
                return
            self.drop(answer)
            _tell(answer, refusal(late(self._seconds)))


def _tell(awaited: Awaited, answer: Any) -> None:
    """Gives an answer to whoever asked, unless they have gone; others get theirs if that fails."""
    try:
        if not awaited.done():
            awaited.set_result(answer)
    except Exception:
        logger.exception("an answer could not be given to a client")


def late(seconds: float) -> RequestError:
    """Returns the error for a request that has had no answer for so long."""
    return RequestError(f"there was no answer within {seconds:g} seconds.", 504)
