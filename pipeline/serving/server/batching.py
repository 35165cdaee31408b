"""Requests of many clients, asked of the model together."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from pipeline.serving.server.errors import RequestError

Ask = Callable[[Sequence[Any]], list[Any]]
"""Gives an answer, or the exception that it failed by, for each of several requests."""

BATCH_ROWS = 1024
"""Rows that are asked together, unless one request alone has more."""
QUEUE_ROWS = 16_384
"""Rows that may wait; then it is better that clients come again later."""


@dataclass(frozen=True)
class _Waiting:
    """A request that waits for its answer."""

    ask: Ask
    request: Any
    rows: int
    answer: asyncio.Future[Any]


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

    def ask(self, ask: Ask, request: Any, rows: int) -> asyncio.Future[Any]:
        """Has a request answered.

        Args:
          ask: equal for requests that can be asked together.
          request: what it is given.
          rows: of the request.

        Returns:
          What will be the answer, or the exception that it failed by.

        Raises:
          RequestError: too many rows wait, with status 503.
        """
        if self._queue and self.waiting_rows + rows > self._queue_rows:
            raise RequestError(f"{self.waiting_rows} rows wait already: come again later.", 503)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(ask, request, rows, future))
        self.waiting_rows += rows
        self._start()
        return future

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
        requests = [one.request for one in batch]
        try:
            for one, answer in zip(
                batch, await run(self._executor, batch[0].ask, requests), strict=True
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
