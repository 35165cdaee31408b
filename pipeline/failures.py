"""Why a run ended early, in one sentence."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterable
from pathlib import Path

from components.user_errors import find_user_error
from pipeline.local import ComponentFailedError
from pipeline.summary import Status
from trainer_module.errors import ConfigError, DataError


def explain(error: BaseException, sources: Iterable[Path] = ()) -> tuple[Status, str]:
    """The status that an error leads to, and one sentence about its cause.

    Args:
      error: what a run raised.
      sources: files of the user's code, of which the one that failed is named with its line.
    """
    if isinstance(error, KeyboardInterrupt):
        return Status.INTERRUPTED, "interrupted"
    known = find_user_error(error)
    if known is not None:
        unusable = isinstance(known, (DataError, ConfigError))
        return (Status.UNUSABLE if unusable else Status.FAILED), str(known)
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
        return Status.FAILED, (
            f"the disk is full ({cause.filename or 'no file named'}); "
            "make room, or give another folder with --output"
        )
    if isinstance(cause, ComponentFailedError):
        return Status.FAILED, "its inputs could not be resolved; the log says why"
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    said = f"{type(cause).__name__}: {lines[-1] if lines else 'no message'}"
    return Status.FAILED, _place(cause, set(sources)) + said


def _place(cause: BaseException, sources: set[Path]) -> str:
    """Where in the user's code an error came from: `my_model.py, line 6: `, or nothing."""
    frames = traceback.extract_tb(cause.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() in sources]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}: " if own else ""
