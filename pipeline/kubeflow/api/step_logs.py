"""Reads the logs of a run's steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from pipeline.config.issues import near_match
from pipeline.kubeflow.api.client import Kubeflow, NoLogError
from pipeline.kubeflow.api.polling import Polling
from pipeline.kubeflow.api.tasks import ENDED, Step, read_steps
from pipeline.kubeflow.compiled import without_marked
from trainer_module.errors import ConfigError

TAIL_BYTES = 4 << 20
"""How much of a log's end is kept: the reports of steps are there."""
Write = Callable[[bytes], None]


def stream_log(kubeflow: Kubeflow, run: str, step: Step) -> Iterator[bytes]:
    """The log of a step so far, in pieces.

    Args:
      kubeflow: where it runs.
      run: the run's id.
      step: of the run.

    Raises:
      NoLogError: it has no pod, or the logs of none of its possible pods can be read.
    """
    reason = NoLogError(f"the log of `{step.name}` cannot be read: it has no pod")
    for pod in step.pods:
        pieces = kubeflow.log(run, pod)
        try:
            first = next(pieces)
        except NoLogError as error:
            reason = error
            continue
        yield first
        yield from pieces
        return
    raise reason


def read_tail(kubeflow: Kubeflow, run: str, step: Step) -> str:
    """The end of a step's log; raises as `stream_log` does."""
    kept = bytearray()
    for piece in stream_log(kubeflow, run, step):
        kept += piece
        if len(kept) > 2 * TAIL_BYTES:
            del kept[:-TAIL_BYTES]
    return kept[-TAIL_BYTES:].decode(errors="replace")


class LogReader:
    """Writes the logs of a run's steps, each line once and when it is complete.

    Lines that are for programs are left out.
    """

    def __init__(self, kubeflow: Kubeflow, run: str, step: str | None, write: Write) -> None:
        """Prepares to read.

        Args:
          kubeflow: where it runs.
          run: the run's id.
          step: the only step to read, in whatever case; else all, each below its name.
          write: takes the bytes.
        """
        self._kubeflow = kubeflow
        self._run = run
        self._step = step
        self._write = write
        self._bytes_read: dict[tuple[str, ...], int] = {}
        self._partial_lines: dict[tuple[str, ...], bytes] = {}
        self._done: set[tuple[str, ...]] = set()
        self._current = ""

    def show(self) -> None:
        """Writes what there is.

        Raises:
          ConfigError: the run has no such step.
          NoLogError: the log of the only step cannot be read.
        """
        steps = read_steps(self._kubeflow.run(self._run))
        for step in self._select(steps):
            self._write_new(step, is_final=True)
        self._check_found(steps)

    def follow(self, polling: Polling) -> None:
        """Writes what there is, and what is added until the run has ended; raises as `show`."""
        while True:
            run = polling.retry(lambda: self._kubeflow.run(self._run))
            steps = read_steps(run)
            for step in self._select(steps):
                has_ended = step.has_ended or run.state in ENDED
                polling.retry(lambda step=step, end=has_ended: self._write_new(step, end))  # type: ignore[misc]
            if run.state in ENDED:
                self._check_found(steps)
                return
            time.sleep(polling.interval)

    def _select(self, steps: dict[str, Step]) -> list[Step]:
        wanted = self._step and self._step.lower()
        return [step for step in steps.values() if step.pods and wanted in (None, step.name)]

    def _check_found(self, steps: dict[str, Step]) -> None:
        names = [step.name for step in steps.values() if step.pods]
        if self._step is not None and self._step.lower() not in names:
            hint = near_match(self._step.lower(), names) if names else "none has begun"
            raise ConfigError(
                f"--step {self._step}: no step of this name has begun in the run {self._run}; "
                f"{hint}"
            )

    def _write_new(self, step: Step, is_final: bool) -> None:
        """Writes what is new of one step; the API always sends the whole log."""
        if step.pods in self._done:
            return
        skip = self._bytes_read.get(step.pods, 0)
        try:
            for piece in stream_log(self._kubeflow, self._run, step):
                new, skip = piece[skip:], max(0, skip - len(piece))
                self._bytes_read[step.pods] = self._bytes_read.get(step.pods, 0) + len(new)
                self._write_lines(step, new)
        except NoLogError as error:
            # Its container may not have started yet.
            if is_final:
                self._write_lines(step, b"", is_end=True)
                if self._step is not None:
                    raise
                self._write_lines(step, f"{error}\n".encode())
        if is_final:
            self._write_lines(step, b"", is_end=True)
            self._done.add(step.pods)

    def _write_lines(self, step: Step, new: bytes, is_end: bool = False) -> None:
        """Writes the lines that are complete, and keeps the rest for the next call."""
        text = self._partial_lines.pop(step.pods, b"") + new
        end = len(text) if is_end else text.rfind(b"\n") + 1
        self._partial_lines[step.pods] = text[end:]
        if shown := without_marked(text[:end]):
            self._write_heading(step.name)
            self._write(shown)

    def _write_heading(self, name: str) -> None:
        """Writes the step's name above its lines, if several steps are read."""
        if self._step is None and name != self._current:
            self._current = name
            self._write(f"== {name}\n".encode())
