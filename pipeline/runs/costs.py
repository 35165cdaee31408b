"""Measures the processor time, the peak memory and the written bytes of each component of a run."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pipeline.records.details import StepCost
from pipeline.runs.process_tree import Memory, ProcessTree, Usage, read_memory, read_shared

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_INTERVAL = 0.05
"""The seconds between two samples of memory."""
_SHARE = 0.003
"""The largest share of a core for the samples, and again for reading the shared memory."""
_SHARE_AT_CHANGE = 0.02
"""The same share if processes have begun or ended."""


class CostMeter:
    """A meter of this process, of its workers, and of all other descendants.

    A thread samples memory while a component runs. The meter therefore begins after the fork server
    has been forked.
    """

    def __init__(self) -> None:
        self.costs: dict[str, StepCost] = {}
        """The costs of the components that have run, by name."""
        self._tree = ProcessTree(os.getpid())

    @contextmanager
    def measure(self, component: str) -> Iterator[None]:
        """Measures a component in a `with` block, unless the system has no /proc.

        An error of the measurement, such as too many threads, does not fail the component, which
        then has no cost.
        """
        begun = _unless_it_fails(self._begin)
        try:
            yield
        finally:
            if begun is not None:
                cost = _unless_it_fails(lambda: self._end(*begun))
                self.costs |= {} if cost is None else {component: cost}

    def _begin(self) -> tuple[Usage, _PeakSampler] | None:
        if not self._tree.members():
            return None
        before, sampler = self._tree.usage(), _PeakSampler(self._tree)
        sampler.start()
        return before, sampler

    def _end(self, before: Usage, sampler: _PeakSampler) -> StepCost:
        sampler.stop()
        after = self._tree.usage()
        return StepCost(
            # A process that outlives its parent takes its time out of the tree when it ends.
            cpu_seconds=round(max(after.cpu_seconds - before.cpu_seconds, 0.0), 3),
            peak_bytes=sampler.peak,
            written_bytes=max(after.written_bytes - before.written_bytes, 0),
        )


def _unless_it_fails(work: Callable[[], _T]) -> _T | None:
    """Returns the result of a part of the measurement, or None after an error, which is logged."""
    try:
        return work()
    except Exception:
        logger.warning("The costs of a component are not known", exc_info=True)
        return None


class _PeakSampler:
    """A sampler of the memory of this process and its descendants between `start` and `stop`.

    The peak is the largest sum of resident memory at one time. Pages that processes share since a
    fork count once, and so do libraries. Between two samples, the kernel's record of the highest
    memory of a process shows peaks that exceed its earlier peaks.
    """

    def __init__(self, tree: ProcessTree) -> None:
        self.peak = 0
        self._tree = tree
        self._highest: dict[int, int] = {}
        """The highest memory of each process at the last sample, by id."""
        self._counted: set[int] = set()
        """The processes whose shared memory is known."""
        self._shared = 0
        """The bytes that would count several times."""
        self._last_reading = self._reading_seconds = 0.0
        self._has_read = False
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="costs", daemon=True)

    def start(self) -> None:
        """Takes the first sample and starts the thread that takes the others."""
        self._highest = {p: m.highest for p in self._tree.members() if (m := read_memory(p))}
        self._sample()
        self._thread.start()

    def stop(self) -> None:
        """Takes the last sample."""
        self._has_ended.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        pause = _INTERVAL
        while not self._has_ended.wait(pause):
            began = time.thread_time()
            self._sample()
            seconds = time.thread_time() - began - self._reading_seconds * self._has_read
            pause = max(_INTERVAL, seconds / _SHARE)

    def _sample(self) -> None:
        read = {pid: memory for pid in self._tree.members() if (memory := read_memory(pid))}
        # A process that has just begun may still share all memory with its parent. It counts from
        # its second sample on.
        settled = read.keys() & self._highest.keys()
        share = _SHARE if settled == self._counted else _SHARE_AT_CHANGE
        self._has_read = time.monotonic() >= self._last_reading + self._reading_seconds / share
        if self._has_read:
            self._read_shared(settled)
        counted = {pid: read[pid] for pid in self._counted & settled}
        sizes = (self._size_since_last(pid, m) - m.of_files for pid, m in counted.items())
        # All processes run Python with about the same libraries.
        files = max((m.of_files for m in counted.values()), default=0)
        self.peak = max(self.peak, sum(sizes) - self._shared + files)
        self._highest = {pid: memory.highest for pid, memory in read.items()}

    def _size_since_last(self, pid: int, memory: Memory) -> int:
        """Returns the largest memory of a process since the last sample."""
        return memory.highest if memory.highest > self._highest[pid] else memory.now

    def _read_shared(self, processes: set[int]) -> None:
        began = time.thread_time()
        self._shared = sum(map(read_shared, processes)) if len(processes) > 1 else 0
        self._counted = processes
        self._last_reading = time.monotonic()
        self._reading_seconds = time.thread_time() - began
