"""What is said of a worker's errors, and of a worker that has ended before its work.

Beam hands on the text of a worker's traceback alone. So the error is described in that text, too,
by which the run knows it as if it had happened in the run itself.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence

from components.processes.failures import Failure, describe
from trainer_module.errors import WorkerError

_MARK = "\nThe error of "


def describe_error(worker: str, error: BaseException) -> str:
    """What Beam is told by a worker in which an error was raised.

    Args:
      worker: its name.
      error: as it was raised.
    """
    text = "".join(traceback.format_exception(error))
    return text + _MARK + json.dumps([worker, describe(error)])


def died(worker: str, status: int, log_tail: Sequence[str]) -> str:
    """What Beam is told in place of the worker's answer: a WorkerError.

    Args:
      worker: its name.
      status: the exit status of its process, or minus the signal that ended it.
      log_tail: the last lines of its output.
    """
    failure = Failure.of_exit(worker, status)
    said = f" It said last: {log_tail[-1]}" if log_tail and not failure.signal else ""
    error = WorkerError(
        f"{failure.sentence}.{said} What it had not finished is not used; run again, or give it"
        " less to do at once: beam.workers: 1."
    )
    return describe_error(worker, error)


def find_cause(error: BaseException) -> Exception | None:
    """The worker's error behind one of Beam's in the run; None if it came from no worker."""
    _, mark, described = str(error).rpartition(_MARK)
    if not mark:
        return None
    worker, values = json.loads(described)
    return Failure.of_error(worker, values).to_exception(())
