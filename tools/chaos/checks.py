"""Invariants that hold after each night, whatever happened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from pipeline.exit_codes import EXIT_PUSHED, EXIT_UNUSABLE
from pipeline.records.event_log import EventKind, LoggedEvent
from tools.chaos.days import REFUSED, TRAINED_AT_ONCE, WITHOUT_ROWS, DayData, Night
from tools.replay import NAME, Replay

NOTIFIED = {
    DayData.EMPTY: "skipped",
    DayData.HEADER: "skipped",
    DayData.POISONED: "not_blessed",
    DayData.SHIFTED: "failed",
    DayData.BROKEN: "failed",
}
"""The occasions of the notifications that such days cause."""
_STORES = ("ledger.db", "metadata.db")


def find_faults(replay: Replay) -> Iterator[str]:
    """Yields violations of the invariants that hold after any command."""
    output = replay.output / NAME
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(replay.output) in command and process.status() != psutil.STATUS_ZOMBIE:
            yield f"a process is left: {command[:200]}"
    for name in _STORES:
        if (output / name).exists():
            with closing(sqlite3.connect(output / name)) as connection:
                (said,) = connection.execute("PRAGMA integrity_check").fetchone()
            if said != "ok":
                yield f"{name}: {said}"
    serving = output / "serving" / NAME
    for folder in serving.iterdir() if serving.exists() else ():
        if folder.is_dir() and not folder.name.isdigit():
            yield f"an incomplete folder is left: {folder}"
    if replay.versions:
        try:
            ask_model(serving / replay.versions[-1])
        except Exception as error:  # TensorFlow raises various types.
            yield f"version {replay.versions[-1]} does not answer: {error}"


def find_half_artifacts(replay: Replay) -> Iterator[str]:
    """Yields artifacts without files, and artifact folders without an execution.

    No run would ever find or delete these. Files of a stopped component are deleted with its run,
    as its execution is recorded.
    """
    output = replay.output / NAME
    with closing(sqlite3.connect(output / "metadata.db")) as connection:
        executions = {row for (row,) in connection.execute("SELECT id FROM Execution")}
        live = connection.execute("SELECT uri FROM Artifact WHERE state = ?", [_LIVE]).fetchall()
    for folder in (output / "pipeline_root").glob("*/*/[0-9]*"):
        if int(folder.name) not in executions:
            yield f"an artifact's folder is left without an entry in the metadata: {folder}"
    for (uri,) in live:
        if not Path(uri).exists():
            yield f"an artifact has no files: {uri}"


_LIVE = 2
"""The state of a live artifact in ML Metadata."""


def ask_model(folder: Path) -> dict[str, Any]:
    """Loads a version, and returns its prediction for a row of missing values."""
    import tensorflow as tf

    serve = tf.saved_model.load(str(folder)).signatures["serving_raw"]
    _, specs = serve.structured_input_signature
    row = {name: tf.zeros([1, 1], spec.dtype) for name, spec in specs.items()}
    return dict(serve(**row))


def check_night(
    before: Sequence[Night], night: Night, code: int, events: list[LoggedEvent], told: list[str]
) -> Iterator[str]:
    """Yields deviations of an undisturbed night from docs/scheduling.md.

    Args:
      before: the nights before.
      night: the night to check.
      code: the exit code of the last `schedule --once`.
      events: the events that the night has added to the history.
      told: the occasions of the notifications that the webhook received.
    """
    finished = [event for event in events if event.kind is EventKind.FINISHED]
    # The last arrived day with rows determines the outcome.
    came_late = bool(before) and before[-1].data is DayData.LATE
    arrived = [day for day in before if day.data not in WITHOUT_ROWS]
    arrived += [night] if night.data not in (*WITHOUT_ROWS, DayData.LATE) else []
    is_refused = arrived[-1].data in REFUSED
    due = not is_refused and (night.data in TRAINED_AT_ONCE or came_late)
    if len(finished) != due:
        yield f"{len(finished)} runs were finished, expected {int(due)}"
    if code != (expected := EXIT_UNUSABLE if is_refused else EXIT_PUSHED):
        yield f"exit code {code}, expected {expected}"
    occasion = NOTIFIED.get(night.data)
    if occasion and occasion not in told:
        yield f"no notification of {occasion} was sent: {told}"
    if night.data is DayData.POISONED and EventKind.PUSHED in {event.kind for event in events}:
        yield "a model of shuffled labels was pushed"
