"""Requests of many clients, asked of the model together."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from pipeline.serving.requests import MISSING
from pipeline.serving.server.errors import RequestError

Arrays = dict[str, np.ndarray]
Ask = Callable[[Arrays], Arrays]

BATCH_ROWS = 1024
"""Rows that are asked together, unless one request alone has more."""
QUEUE_ROWS = 16_384
"""Rows that may wait; then it is better that clients come again later."""


@dataclass(frozen=True)
class _Waiting:
    """A request that waits for its answer."""

    ask: Ask
    columns: Arrays
    rows: int
    answer: asyncio.Future[Arrays] = field(repr=False)


class Batcher:
    """Asks at once while there is a free thread, and lets requests gather while there is none.

    So nobody waits when there is little to do, and batches grow with the load.
    """

    def __init__(
        self,
        executor: Executor,
        told: Callable[[int], None],
        queue_rows: int = QUEUE_ROWS,
        threads: int | None = None,
    ) -> None:
        """Args:
        executor: runs the model.
        told: is told how many rows are asked together.
        queue_rows: that may wait.
        threads: batches that are asked for side by side.
        """
        self._executor, self._told, self._queue_rows = executor, told, queue_rows
        self._free = threads or os.cpu_count() or 1
        self._queue: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiting_rows = 0

    async def ask(self, ask: Ask, columns: Arrays) -> Arrays:
        """Answers by name, [rows, ...] each.

        Args:
          ask: of one version, for one signature; equal for requests that can be asked together.
          columns: tensors, [rows, ...] each.

        Raises:
          RequestError: too many rows wait, with status 503, or the model refuses these.
        """
        rows = len(next(iter(columns.values())))
        if self._queue and self.waiting_rows + rows > self._queue_rows:
            raise RequestError(f"{self.waiting_rows} rows wait already: come again later.", 503)
        future: asyncio.Future[Arrays] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(ask, columns, rows, future))
        self.waiting_rows += rows
        self._start()
        return await future

    def _start(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            task = asyncio.create_task(self._run(self._next()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next(self) -> list[_Waiting]:
        batch = [self._queue.popleft()]
        rows = batch[0].rows
        while self._queue and self._queue[0].ask == batch[0].ask:
            if rows + self._queue[0].rows > BATCH_ROWS:
                break
            batch.append(self._queue.popleft())
            rows += batch[-1].rows
        self.waiting_rows -= rows
        return batch

    async def _run(self, batch: Sequence[_Waiting]) -> None:
        self._told(sum(one.rows for one in batch))
        run = asyncio.get_running_loop().run_in_executor
        try:
            for one, answer in zip(
                batch, await run(self._executor, _ask_together, batch), strict=True
            ):
                if one.answer.done():  # Whoever asked has gone.
                    continue
                if isinstance(answer, Exception):
                    one.answer.set_exception(answer)
                else:
                    one.answer.set_result(answer)
        finally:
            self._free += 1
            self._start()


def _ask_together(batch: Sequence[_Waiting]) -> list[Arrays | Exception]:
    """An answer, or what it failed by, for each request."""
    if len(batch) > 1:
        try:
            names = batch[0].columns
            together = {n: _join([one.columns[n] for one in batch]) for n in names}
            return _split(batch[0].ask(together), [one.rows for one in batch])
        except Exception:  # noqa: S110 - some request is to blame: asked by itself, it will show
            pass
    return [_ask_alone(one) for one in batch]


def _ask_alone(one: _Waiting) -> Arrays | Exception:
    try:
        return one.ask(one.columns)
    except Exception as error:
        return error


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of several requests; lists are as long as the longest."""
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    fill = MISSING.get("string" if parts[0].dtype == object else parts[0].dtype.name, 0)
    together = np.full((sum(map(len, parts)), width), fill, parts[0].dtype)
    end = 0
    for part in parts:
        together[end : end + len(part), : part.shape[1]] = part
        end += len(part)
    return together


def _split(answers: Arrays, rows: Sequence[int]) -> list[Arrays | Exception]:
    ends = np.cumsum(rows)
    return [
        {name: values[end - count : end] for name, values in answers.items()}
        for end, count in zip(ends, rows, strict=True)
    ]
