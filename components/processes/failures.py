"""The failures of workers, and the choice of the failure that caused the others."""

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

# The errors that TensorFlow raises in the other workers after a worker has died.
_SYMPTOMS = {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"}
_SYMPTOM_WORDS = ("Collective ops is aborted", "aborted peer", "Connection reset by peer")
_PORT_TAKEN = ("Could not start gRPC server", "Address already in use")


class StartTimeoutError(TrainingError):
    """An error for a worker that was not ready in time."""


class WorkerFailedError(Exception):
    """An unexpected error in a worker. The message is a single sentence."""

    def __init__(self, failure: Failure, log_tail: Sequence[str], suffix: str = "") -> None:
        super().__init__(failure.sentence + suffix)
        self.worker = failure.worker
        self.error_type = failure.error_type
        """The qualified name of the Python exception, or an empty string without an exception."""
        self.error_message = failure.message
        """The whole message of the Python exception, or a description of the process's end."""
        self.frames = list(failure.frames)
        """The frames of the traceback. The last frame is the innermost."""
        self.log_tail = list(log_tail)


class OverdueError(WorkerFailedError):
    """An error for a worker that exceeded its time limit."""


@dataclass(frozen=True)
class Failure:
    """The unexpected end of a worker."""

    worker: str
    at: float
    """The time of the failure, in seconds since the epoch."""
    message: str
    error_type: str = ""
    """The qualified name of the Python exception, or an empty string without an exception."""
    frames: tuple[Frame, ...] = ()
    user_error: str = ""
    """The name of the exception's class if it is in `trainer_module.errors`, or else an empty
    string."""
    signal: str = ""
    """The signal that ended the process, such as SIGKILL, or an empty string."""
    remark: str = ""
    """The reason why the process ended, if it is known from another source than the process."""

    @classmethod
    def of_error(cls, worker: str, values: Mapping[str, Any]) -> Failure:
        """Returns the failure from the description of an error that a worker sent."""
        frames = tuple((file, line) for file, line in values["frames"])
        return cls(worker, **{**values, "frames": frames})

    @classmethod
    def of_exit(cls, worker: str, status: int, remark: str = "") -> Failure:
        """Returns the failure of a worker that ended without describing an error.

        Args:
          status: the exit status, or minus the number of the signal that ended the worker.
        """
        name = name_signal(status)
        description = f"was killed by {name}" if name else f"ended early, with exit status {status}"
        message = f"{description}: {remark}" if remark else description
        return cls(worker, time.time(), message, signal=name, remark=remark)

    @property
    def summary(self) -> str:
        """The failure in one sentence, such as `worker 1 was killed by SIGKILL`."""
        if not self.error_type:
            return f"{self.worker} {self.message}"
        name = self.error_type.rpartition(".")[2]
        return f"{self.worker}: {name}: {_gist(self.message) or 'no message'}"

    @property
    def sentence(self) -> str:
        """The summary, with a possible reason if the system killed the worker."""
        is_unclear = self.signal == "SIGKILL" and not self.remark
        return self.summary + (" (out of memory?)" if is_unclear else "")

    @property
    def is_symptom(self) -> bool:
        """Whether the failure is probably caused by the end of another worker."""
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

    def to_exception(self, log_tail: Sequence[str], suffix: str = "") -> Exception:
        """Returns the worker's own exception if a user can fix it, or else a WorkerFailedError."""
        if self.user_error:
            error_class: type[errors.ScopelineError] = getattr(errors, self.user_error)
            return error_class(self.message)
        return WorkerFailedError(self, log_tail, suffix)


def describe(error: BaseException) -> dict[str, Any]:
    """Returns an error as JSON values: fields of `Failure` by name, without `worker`."""
    user_error = find_user_error(error)
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    error_class = type(user_error or cause)
    user_classes = [
        base.__name__ for base in error_class.__mro__ if base.__module__ == errors.__name__
    ]
    module = "" if error_class.__module__ == "builtins" else f"{error_class.__module__}."
    return {
        "at": time.time(),
        "message": str(user_error or cause),
        "error_type": module + error_class.__qualname__,
        "frames": [[f.filename, f.lineno] for f in traceback.extract_tb(cause.__traceback__)],
        "user_error": user_classes[0] if user_classes else "",
    }


def first_cause(failures: Iterable[Failure]) -> Failure:
    """Returns the failure that caused the others.

    This is the earliest failure that is not a symptom, or the earliest of all if all are symptoms.
    """
    return min(failures, key=lambda failure: (failure.is_symptom, failure.at))


def _gist(message: str) -> str:
    """Returns the last line of an exception's message that is not a list of TensorFlow's nodes."""
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith("[[")]
    return lines[-1].partition(" [Op:")[0] if lines else ""
