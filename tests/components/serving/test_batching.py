"""Requests that are asked together, and where: in the event loop's thread or in others."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from components.serving.model import Model
from components.serving.requests import Arrays
from components.serving.server.batching import (
    BATCH_ROWS,
    QUICK_SECONDS,
    AsyncResponseFuture,
    Batcher,
)
from components.serving.server.protocols.values import RequestInputs, from_rows, to_arrays
from components.serving.server.reading import MemoryBudget
from components.serving.server.replies import Reply, RequestError, error_reply
from tests.support.servers import asked_of, raw_call


class Gate:
    """A model that answers once it is let: with how many rows it was asked for together."""

    def __init__(self, model: Model) -> None:
        self.folder, self.interface = model.folder, model.interface
        self.opened = threading.Event()
        self.batches: list[int] = []

    def predict(self, columns: Arrays) -> Arrays:
        assert self.opened.wait(30)
        values = columns["fare"]
        self.batches.append(len(values))
        if (values < 0).any():
            raise ValueError("a value is negative")
        return {"twice": values * 2}


ROW = {"price__EUR_": 1, "area": 8, "company": "", "tags": ["t1", "t2"]}


def asked_at_once(gate: Gate, values: list[Any], queue_rows: int) -> list[Any]:
    """What each request comes to, where the first one is asked before the others come.

    Tensors, which are of another width, rows of JSON and columns take turns.
    """
    question = raw_call(gate)

    def request(place: int, value: Any) -> RequestInputs:
        rows = [{"fare": value, **ROW}]
        columns = from_rows(rows, gate.interface)
        kinds = [to_arrays({**columns, "tags": [["t1"]]}, gate.interface), rows, columns]
        return kinds[place % 3]

    async def ask_all() -> list[Any]:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(executor, lambda rows: None, queue_rows, threads=1)

            async def ask(place: int, value: Any) -> list[Any]:
                waiting = AsyncResponseFuture(place)
                batcher.enqueue(question, asked_of(request(place, value)), 1, waiting)
                found = await waiting
                if isinstance(found, Reply):
                    return found
                assert found.column_texts["twice"] == [b"%.1f" % (2 * value)]
                return found.arrays["twice"].tolist()

            tasks = [asyncio.create_task(ask(*each)) for each in enumerate(values)]
            await asyncio.sleep(0.1)
            gate.opened.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(ask_all())


def test_wrong_requests_are_found_before_the_model_is_asked(model: Model) -> None:
    gate, noted = Gate(model), list[int]()
    gate.opened.set()
    log = SimpleNamespace(note=lambda answered: noted.append(answered.rows))
    call = replace(raw_call(gate), log=cast("Any", log))
    values: list[Any] = ["text" if place % 2 else place for place in range(32)]
    found = call([asked_of([{"fare": value, **ROW}]) for value in values])
    assert (gate.batches, noted) == ([16], [16])
    for value, one in zip(values, found, strict=True):
        if value == "text":
            assert isinstance(one, Reply)
            assert (one.status, b"'fare' of row 0 is text" in one.body) == (400, True)
        else:
            assert one.arrays["twice"].tolist() == [2 * value]
    # Where the model fails, it is asked by halves: all, 2, 1 and 1, and the other 2.
    gate.batches.clear()
    replies = call([asked_of([{"fare": value, **ROW}]) for value in (1, -2, 3, "text", 4)])
    assert [isinstance(one, Reply) for one in replies] == [False, True, False, True, False]
    assert gate.batches == [4, 2, 1, 1, 2]


def test_requests_that_wait_are_asked_together(model: Model) -> None:
    gate = Gate(model)
    assert asked_at_once(gate, [1, 2, 3, 4], 100) == [[2], [4], [6], [8]]
    assert gate.batches == [1, 3]


def test_requests_beyond_the_queue_are_told_to_come_again(model: Model) -> None:
    answers = asked_at_once(Gate(model), [1, 2, 3, 4, 5], 2)
    assert [isinstance(answer, RequestError) for answer in answers] == [False] * 3 + [True] * 2
    assert answers[4].status == 503
    assert "try again later" in str(answers[4])


class Threads:
    """Answers after some seconds; in the thread of the event loop, or in others."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.batches: list[tuple[int, bool]] = []
        """Requests that were asked together, and whether the thread was that of the loop."""

    def __call__(self, requests: Sequence[Any]) -> list[Any]:
        here = threading.current_thread() is threading.main_thread()
        self.batches.append((len(requests), here))
        time.sleep(self.seconds)
        return [error_reply(ValueError("none")) if one is None else one for one in requests]


def with_batcher(use: Callable[[Batcher], Any]) -> None:
    async def run() -> None:
        with ThreadPoolExecutor(1) as executor:
            await use(Batcher(executor, lambda rows: None, threads=1))

    asyncio.run(run())


async def answer(batcher: Batcher, ask: Threads, request: Any, rows: int = 1) -> Any:
    waiting = AsyncResponseFuture(None)
    batcher.enqueue(ask, request, rows, waiting)
    return await waiting


def test_quick_model_is_asked_in_the_thread_of_the_event_loop() -> None:
    ask = Threads(0)

    async def use(batcher: Batcher) -> None:
        assert [await answer(batcher, ask, n) for n in range(3)] == [0, 1, 2]
        # How long it takes is not known before it has been asked once.
        assert ask.batches == [(1, False), (1, True), (1, True)]
        for is_here in (False, True):  # Nor how long five rows take.
            together = await asyncio.gather(*(answer(batcher, ask, n) for n in range(5)))
            assert together == list(range(5))
            assert ask.batches[-1] == (5, is_here)
        assert (await answer(batcher, ask, None)).status == 500

    with_batcher(use)


def test_client_of_a_request_that_made_a_batch_fail_is_asked_alone() -> None:
    """One of eight clients sends what fails; their requests come together, again and again."""
    batches: list[list[Any]] = []

    def ask(requests: Sequence[Any]) -> list[Any]:
        batches.append(list(requests))
        return [error_reply(RequestError("no")) if one == 3 else one for one in requests]

    async def use(batcher: Batcher) -> None:
        for _ in range(3):
            waiting = [AsyncResponseFuture(("client", n)) for n in range(8)]
            for n, one in enumerate(waiting):
                batcher.enqueue(ask, n, 1, one)
            found = [await one for one in waiting]
            assert [one for one in found if not isinstance(one, Reply)] == [0, 1, 2, 4, 5, 6, 7]
        assert batches[:2] == [[0], [1, 2, 3, 4, 5, 6, 7]]
        assert all(batch == [3] for batch in batches[2:] if 3 in batch)
        # Nor does it wait for all others: its turn comes after each batch of theirs.
        assert sum(3 in batch for batch in batches) == 3

    with_batcher(use)


class Told:
    """What a connection is told, whose transport may fail."""

    client = "a client"

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.result = fails, None

    def done(self) -> bool:
        return self.result is not None

    def set_result(self, result: Any) -> None:
        if self.fails:
            raise RuntimeError("the transport is closed")
        self.result = result


@pytest.mark.parametrize("seconds", [30, 0.05])
def test_answer_that_cannot_be_given_takes_no_others_with_it(seconds: float) -> None:
    """Whether the model answers or the time is up."""
    room, gate = MemoryBudget(), threading.Event()

    def ask(requests: Sequence[Any]) -> list[Any]:
        gate.wait(30)
        return list(requests)

    async def use() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(executor, lambda rows: None, threads=1, memory=room, seconds=seconds)
            told = [Told(fails=n == 1) for n in range(4)]
            for one in told:
                batcher.enqueue(ask, 7, 1, one, size=100)
            if seconds > 1:
                gate.set()
            await asyncio.sleep(0.2)
            done = [one.done() for one in told]
            gate.set()
            await asyncio.sleep(0.1)
            assert done == [True, False, True, True]
            assert (room.taken, batcher.waiting_rows) == (0, 0)

    asyncio.run(use())


def test_requests_that_are_given_up_are_not_kept_while_the_model_hangs() -> None:
    gate, kept = threading.Event(), weakref.WeakSet[Told]()

    def ask(requests: Sequence[Any]) -> list[Any]:
        gate.wait(30)
        return list(requests)

    async def use(batcher: Batcher) -> None:
        for _ in range(2000):
            told = Told()
            kept.add(told)
            batcher.enqueue(ask, 7, 1, told)
            batcher.drop(told)
        last = AsyncResponseFuture(None)
        batcher.enqueue(ask, 7, 1, last)
        assert len(kept) < 200
        gate.set()
        assert await last == 7

    with_batcher(use)


def test_batches_grow_as_long_as_the_model_is_quick() -> None:
    async def largest(seconds: float, requests: int, fixed: float = 0.0, rows: int = 1) -> int:
        batches: list[int] = []

        def ask(asked: Sequence[int]) -> Sequence[int]:
            batches.append(len(asked) * rows)
            time.sleep(fixed + seconds * batches[-1])
            return asked

        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(executor, lambda rows: None, threads=1)
            asked = (answer(batcher, cast("Any", ask), n, rows) for n in range(requests))
            await asyncio.gather(*asked)
        return max(batches)

    assert asyncio.run(largest(0.0, 4000)) == BATCH_ROWS
    assert asyncio.run(largest(0.04, 17)) == 8
    # Nor is one slow of which most of the time is the same for any rows.
    assert asyncio.run(largest(0.0, 33, fixed=0.26)) == 16
    assert asyncio.run(largest(0.0, 5, fixed=0.26, rows=8)) == 16


def test_model_that_becomes_slow_is_asked_in_another_thread_and_the_other_way_round() -> None:
    ask = Threads(0)

    async def use(batcher: Batcher) -> None:
        for seconds, is_here in ((0, True), (4 * QUICK_SECONDS, False), (0, True)):
            ask.seconds = seconds
            for n in range(20):
                assert await answer(batcher, ask, n) == n
            assert ask.batches[-1] == (1, is_here)

    with_batcher(use)


def test_many_rows_of_a_model_that_is_quick_for_one_leave_the_event_loop_free() -> None:
    threads: list[tuple[int, bool]] = []

    def ask(requests: Sequence[int]) -> Sequence[int]:
        rows = sum(requests)
        threads.append((rows, threading.current_thread() is threading.main_thread()))
        time.sleep(QUICK_SECONDS / 20 * rows)
        return requests

    async def use(batcher: Batcher) -> None:
        for _ in range(3):
            for rows in (*[1] * 12, 200):
                assert await answer(batcher, cast("Any", ask), rows, rows) == rows
        assert {here for rows, here in threads if rows == 200} == {False}
        assert all(here for rows, here in threads[1:] if rows == 1)

    with_batcher(use)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_lack_of_memory_is_told_as_such(error: Exception) -> None:
    reply = error_reply(error)
    assert (reply.status, dict(reply.headers)) == (503, {b"retry-after": b"1"})
