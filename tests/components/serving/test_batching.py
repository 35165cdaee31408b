"""Batches of requests, predicted in the event loop's thread or in others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from components.serving.model import Model
from components.serving.requests import Arrays
from components.serving.server import batching
from components.serving.server.batching import (
    AsyncResponseFuture,
    Batcher,
)
from components.serving.server.protocols.values import RequestInputs, from_rows, to_arrays
from components.serving.server.reading import MemoryBudget
from components.serving.server.replies import Reply, RequestError, error_reply
from tests.support.servers import parsed_rows, raw_call


class Gate:
    """A model that answers once it is opened, and counts the rows of each call."""

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


def answers_at_once(gate: Gate, values: list[Any], queue_rows: int) -> list[Any]:
    """The answer to each request, where the first one is predicted before the others come.

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
                batcher.enqueue(question, parsed_rows(request(place, value)), 1, waiting)
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


def test_wrong_requests_are_refused_and_the_rest_of_a_batch_answered(model: Model) -> None:
    gate, noted = Gate(model), list[int]()
    gate.opened.set()
    log = SimpleNamespace(note=lambda answered: noted.append(answered.rows))
    call = replace(raw_call(gate), log=cast("Any", log))
    values: list[Any] = ["text" if place % 2 else place for place in range(32)]
    found = call([parsed_rows([{"fare": value, **ROW}]) for value in values])
    assert (gate.batches, noted) == ([16], [16])
    for value, one in zip(values, found, strict=True):
        if value == "text":
            assert isinstance(one, Reply)
            assert (one.status, b"'fare' of row 0 is text" in one.body) == (400, True)
        else:
            assert one.arrays["twice"].tolist() == [2 * value]
    # Where the model fails, it is called by halves: all, 2, 1 and 1, and the other 2.
    gate.batches.clear()
    replies = call([parsed_rows([{"fare": value, **ROW}]) for value in (1, -2, 3, "text", 4)])
    assert [isinstance(one, Reply) for one in replies] == [False, True, False, True, False]
    assert gate.batches == [4, 2, 1, 1, 2]


def test_waiting_requests_make_one_batch(model: Model) -> None:
    gate = Gate(model)
    assert answers_at_once(gate, [1, 2, 3, 4], 100) == [[2], [4], [6], [8]]
    assert gate.batches == [1, 3]


def test_requests_beyond_the_queue_are_answered_503(model: Model) -> None:
    answers = answers_at_once(Gate(model), [1, 2, 3, 4, 5], 2)
    assert [isinstance(answer, RequestError) for answer in answers] == [False] * 3 + [True] * 2
    assert answers[4].status == 503
    assert "try again later" in str(answers[4])


class Threads:
    """Answers after some seconds; in the thread of the event loop, or in others."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.batches: list[tuple[int, bool]] = []
        """The requests of each batch, and whether the thread was that of the loop."""

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


def test_quick_model_answers_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "QUICK_SECONDS", 5.0)  # Of a busy machine.
    ask = Threads(0)

    async def use(batcher: Batcher) -> None:
        assert [await answer(batcher, ask, n) for n in range(3)] == [0, 1, 2]
        # How long it takes is not known before its first call.
        assert ask.batches == [(1, False), (1, True), (1, True)]
        for is_here in (False, True):  # Nor how long five rows take.
            together = await asyncio.gather(*(answer(batcher, ask, n) for n in range(5)))
            assert together == list(range(5))
            assert ask.batches[-1] == (5, is_here)
        assert (await answer(batcher, ask, None)).status == 500

    with_batcher(use)


class Waiter:
    """A connection that waits for an answer, and whose transport may fail."""

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
def test_closed_connection_in_a_batch_costs_no_other_answer(seconds: float) -> None:
    """Whether the model answers or the time is up."""
    room, gate = MemoryBudget(), threading.Event()

    def ask(requests: Sequence[Any]) -> list[Any]:
        gate.wait(30)
        return list(requests)

    async def use() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(executor, lambda rows: None, threads=1, memory=room, seconds=seconds)
            waiters = [Waiter(fails=n == 1) for n in range(4)]
            for one in waiters:
                batcher.enqueue(ask, 7, 1, one, size=100)
            if seconds > 1:
                gate.set()
            await asyncio.sleep(0.2)
            done = [one.done() for one in waiters]
            gate.set()
            await asyncio.sleep(0.1)
            assert done == [True, False, True, True]
            assert (room.taken, batcher.waiting_rows) == (0, 0)

    asyncio.run(use())


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_memory_error_of_the_model_is_answered(error: Exception) -> None:
    reply = error_reply(error)
    assert (reply.status, dict(reply.headers)) == (503, {b"retry-after": b"1"})
