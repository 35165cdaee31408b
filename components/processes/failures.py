"""The failures of workers, and the choice of the one that caused the others."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.processes.ending import name_signal
from components.user_errors import find_user_error
from trainer_module import errors
from trainer_module.errors import TrainingError

Frame = tuple[str, int]
"""A file and a line."""

# The errors that TensorFlow raises in the other workers after one has died.
_SYMPTOMS = {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"}
_SYMPTOM_WORDS = ("Collective ops is aborted", "aborted peer", "Connection reset by peer")
_PORT_TAKEN = ("Could not start gRPC server", "Address already in use")


class StartTimeoutError(TrainingError):
    """An error for a worker that was not ready in time."""


class WorkerFailedError(Exception):
    """An unexpected error in a worker; the message is one sentence."""

    def __init__(self, failure: Failure, log_tail: Sequence[str], sequel: str = "") -> None:
        """Creates the error from a failure.

        Args:
          failure: the failure.
          log_tail: the last lines of the worker's output.
          sequel: text that is appended to the sentence.
        """
        super().__init__(failure.sentence + sequel)
        self.worker = failure.worker
        """The worker's name."""
        self.error_type = failure.error_type
        """The qualified name of the Python exception; empty if the process ended without one."""
        self.error_message = failure.message
        """The whole message of the Python exception, or how the process ended."""
        self.frames = list(failure.frames)
        """The frames of the traceback, the innermost last."""
        self.log_tail = list(log_tail)


class OverdueError(WorkerFailedError):
    """An error for a worker that exceeded its time limit."""


@dataclass(frozen=True)
class Failure:
    """The unexpected end of a worker."""

    worker: str
    """The worker's name."""
    at: float
    """The time in seconds since the epoch."""
    message: str
    error_type: str = ""
    """The qualified name of the Python exception; empty if the process ended without one."""
    frames: tuple[Frame, ...] = ()
    user_error: str = ""
    """The name of the exception's class if it is in `trainer_module.errors`, else empty."""
    signal: str = ""
    """The signal that ended the process, such as SIGKILL."""
    remark: str = ""
    """Further information on why the process ended."""

    @classmethod
    def of_error(cls, worker: str, values: Mapping[str, Any]) -> Failure:
        """Returns the failure from a worker's own description of its error."""
        frames = tuple((file, line) for file, line in values["frames"])
        return cls(worker, **{**values, "frames": frames})

    @classmethod
    def of_exit(cls, worker: str, status: int, remark: str = "") -> Failure:
        """Returns the failure of a worker that ended without describing an error.

        Args:
          worker: the worker's name.
          status: the exit status, or minus the signal that ended it.
          remark: further information on why it ended.
        """
        name = name_signal(status)
        end_in_words = (
            f"was killed by {name}" if name else f"ended early, with exit status {status}"
        )
        message = f"{end_in_words}: {remark}" if remark else end_in_words
        return cls(worker, time.time(), message, signal=name, remark=remark)

    @property
    def summary(self) -> str:
        """The failure in one sentence, such as `worker 1 was killed by SIGKILL`."""
        if not self.error_type:
            return f"{self.worker} {self.message}"
        kind = self.error_type.rpartition(".")[2]
        return f"{self.worker}: {kind}: {_gist(self.message) or 'no message'}"

    @property
    def sentence(self) -> str:
        """The summary, with a possible reason if the system killed the worker."""
        is_unclear = self.signal == "SIGKILL" and not self.remark
        return self.summary + (" (out of memory?)" if is_unclear else "")

    @property
    def is_symptom(self) -> bool:
        """Whether the failure is more likely a result of another worker's end."""
        return self.error_type.rpartition(".")[2] in _SYMPTOMS or (
            bool(self.error_type) and any(words in self.message for words in _SYMPTOM_WORDS)
        )

    @property
    def is_transient(self) -> bool:
        """Whether the failure is transient, so that a retry may succeed."""
        return bool(self.signal) or self.is_symptom

    @property
    def is_port_taken(self) -> bool:
        """Whether another process had taken the worker's port."""
        return any(words in self.message for words in _PORT_TAKEN)

    def to_exception(self, log_tail: Sequence[str], sequel: str = "") -> Exception:
        """Returns the worker's own exception if a user can mend it, else a WorkerFailedError."""
        if self.user_error:
            kind: type[errors.ScopelineError] = getattr(errors, self.user_error)
            return kind(self.message)
        return WorkerFailedError(self, log_tail, sequel)


def describe(error: BaseException) -> dict[str, Any]:
    """Returns an error as plain values: the fields of Failure except `worker`."""
    known = find_user_error(error)
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    kind = type(known or cause)
    ours = [base.__name__ for base in kind.__mro__ if base.__module__ == errors.__name__]
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return {
        "at": time.time(),
        "message": str(known or cause),
        "error_type": module + kind.__qualname__,
        "frames": [[f.filename, f.lineno] for f in traceback.extract_tb(cause.__traceback__)],
        "user_error": ours[0] if ours else "",
    }


def first_cause(failures: Iterable[Failure]) -> Failure:
    """Returns the failure that caused the others: the earliest that is not a symptom, if there is
    one.
    """
    return min(failures, key=lambda failure: (failure.is_symptom, failure.at))


def _gist(message: str) -> str:
    """Returns the most informative line of an exception's message; TensorFlow's end with names of
    nodes.
    """
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith("[[")]
    return lines[-1].partition(" [Op:")[0] if lines else ""
