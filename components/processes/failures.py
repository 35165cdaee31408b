"""What went wrong in a worker, and which of several failures was the cause of the others."""

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

# What TensorFlow raises in the workers that are left when another has died.
_SYMPTOMS = {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"}
_SYMPTOM_WORDS = ("Collective ops is aborted", "aborted peer", "Connection reset by peer")
_PORT_TAKEN = ("Could not start gRPC server", "Address already in use")


class StartTimeoutError(TrainingError):
    """Some worker was not ready in time."""


class WorkerFailedError(Exception):
    """A worker failed by an error that no check foresaw; the message is one sentence."""

    def __init__(self, failure: Failure, log_tail: Sequence[str], sequel: str = "") -> None:
        """Takes the failure.

        Args:
          failure: what happened.
          log_tail: the last lines of the worker's output.
          sequel: is appended to the sentence.
        """
        super().__init__(failure.sentence + sequel)
        self.worker = failure.worker
        """The worker's name."""
        self.error_type = failure.error_type
        """The qualified name of the Python exception; empty if the process just ended."""
        self.error_message = failure.message
        """The whole message of the Python exception, or what ended the process."""
        self.frames = list(failure.frames)
        """Where in the code it was raised, the innermost last."""
        self.log_tail = list(log_tail)


class OverdueError(WorkerFailedError):
    """A worker took longer than it may."""


@dataclass(frozen=True)
class Failure:
    """The end of a worker that was not meant to end like this."""

    worker: str
    """The worker's name."""
    at: float
    """Seconds since the epoch."""
    message: str
    error_type: str = ""
    """The qualified name of the Python exception; empty if the process just ended."""
    frames: tuple[Frame, ...] = ()
    user_error: str = ""
    """The class of `trainer_module.errors`, if it is one."""
    signal: str = ""
    """The signal that ended the process, such as SIGKILL."""
    remark: str = ""
    """What else is known of why it ended."""

    @classmethod
    def of_error(cls, worker: str, values: Mapping[str, Any]) -> Failure:
        """Returns the failure that a worker described itself."""
        frames = tuple((file, line) for file, line in values["frames"])
        return cls(worker, **{**values, "frames": frames})

    @classmethod
    def of_exit(cls, worker: str, status: int, remark: str = "") -> Failure:
        """Returns the failure of a worker that ended without a word.

        Args:
          worker: its name.
          status: the exit status, or minus the signal that ended it.
          remark: what else is known of why it ended.
        """
        name = name_signal(status)
        how = f"was killed by {name}" if name else f"ended early, with exit status {status}"
        message = f"{how}: {remark}" if remark else how
        return cls(worker, time.time(), message, signal=name, remark=remark)

    @property
    def summary(self) -> str:
        """One sentence: `worker 1 was killed by SIGKILL`."""
        if not self.error_type:
            return f"{self.worker} {self.message}"
        kind = self.error_type.rpartition(".")[2]
        return f"{self.worker}: {kind}: {_gist(self.message) or 'no message'}"

    @property
    def sentence(self) -> str:
        """The summary, with a guess at why the system killed it."""
        is_unclear = self.signal == "SIGKILL" and not self.remark
        return self.summary + (" (out of memory?)" if is_unclear else "")

    @property
    def is_symptom(self) -> bool:
        """Whether it rather follows from the end of another worker."""
        return self.error_type.rpartition(".")[2] in _SYMPTOMS or (
            bool(self.error_type) and any(words in self.message for words in _SYMPTOM_WORDS)
        )

    @property
    def may_go_away(self) -> bool:
        """Whether it may well not happen again."""
        return bool(self.signal) or self.is_symptom

    @property
    def is_port_taken(self) -> bool:
        """Whether another process took the worker's port before it did."""
        return any(words in self.message for words in _PORT_TAKEN)

    def to_exception(self, log_tail: Sequence[str], sequel: str = "") -> Exception:
        """Returns the worker's own exception if a user can mend it, else a WorkerFailedError."""
        if self.user_error:
            kind: type[errors.ScopelineError] = getattr(errors, self.user_error)
            return kind(self.message)
        return WorkerFailedError(self, log_tail, sequel)


def describe(error: BaseException) -> dict[str, Any]:
    """What a worker says of its error, as plain values: the fields of Failure but `worker`."""
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
    """Returns the failure that the others follow from: the earliest that is no mere symptom, if
    any.
    """
    return min(failures, key=lambda failure: (failure.is_symptom, failure.at))


def _gist(message: str) -> str:
    """Returns the line of an exception's message that says most: TensorFlow ends with names of
    nodes.
    """
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith("[[")]
    return lines[-1].partition(" [Op:")[0] if lines else ""
