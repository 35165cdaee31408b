"""Why a run ended early, in one sentence."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from pathlib import Path

from components.disk import MAKE_ROOM, first_of_many, free_room, full_file, says_full
from components.processes.failures import Frame, WorkerFailedError
from components.user_errors import find_user_error
from pipeline.records.summary import Status
from pipeline.runs.local import ComponentFailedError


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
        return Status.after(known), str(known)
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if says_full(cause):
        return Status.FAILED, f"the disk is full ({_what_is_full(cause)}); {MAKE_ROOM}"
    if isinstance(cause, ComponentFailedError):
        return Status.FAILED, "its inputs could not be resolved; the log says why"
    if isinstance(cause, WorkerFailedError):
        return Status.FAILED, _place(cause.frames, sources) + str(cause)
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    said = f"{type(cause).__name__}: {lines[-1] if lines else 'no message'}"
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(cause.__traceback__)]
    return Status.FAILED, _place(frames, sources) + said


def _what_is_full(error: BaseException) -> str:
    """The file that could not be written, and the room that there is, as far as they are known."""
    if not isinstance(error, OSError):
        file = full_file(error)
        return f"{file}: {free_room(Path(file))}" if file else "the metadata could not be written"
    why = first_of_many(error)
    if why.filename is None:
        return "no file named"
    if why.strerror != os.strerror(why.errno or 0):
        return f"{why.filename}: {why.strerror}"
    return f"{why.filename}: {free_room(Path(why.filename))}"


def _place(frames: Iterable[Frame], sources: Iterable[Path]) -> str:
    """Where in the user's code an error came from: `my_model.py, line 6: `, or nothing."""
    known = set(sources)
    own = [(file, line) for file, line in frames if Path(file).resolve() in known]
    return f"{Path(own[-1][0]).name}, line {own[-1][1]}: " if own else ""
