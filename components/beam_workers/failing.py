"""What is said of a worker that has ended before its work."""

from __future__ import annotations

from collections.abc import Sequence

from components.trainer.cluster.failures import Failure
from trainer_module.errors import WorkerError


def died(worker: str, status: int, log_tail: Sequence[str]) -> str:
    """What Beam is told in place of the worker's answer: the text of a WorkerError.

    Args:
      worker: its name.
      status: the exit status of its process, or minus the signal that ended it.
      log_tail: the last lines of its output.
    """
    failure = Failure.of_exit(worker, status)
    said = f" It said last: {log_tail[-1]}" if log_tail and not failure.signal else ""
    return (
        f"{WorkerError.__module__}.{WorkerError.__name__}: {failure.sentence}.{said} What it had"
        " not finished is not used; run again, or give it less to do at once: beam.workers: 1."
    )
