"""The invariants that hold after each night, also after faults."""

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
"""The occasion of the notification after a day, by the kind of the day's data."""
_STORES = ("ledger.db", "metadata.db")


def find_faults(replay: Replay) -> Iterator[str]:
    """Yields violations of the invariants that hold after any command."""
    output = replay.output / NAME
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(replay.output) in command and process.status() != psutil.STATUS_ZOMBIE:
            yield f"a process of the pipeline still runs: {command[:200]}"
    for name in _STORES:
        if (output / name).exists():
            with closing(sqlite3.connect(output / name)) as connection:
                (result,) = connection.execute("PRAGMA integrity_check").fetchone()
            if result != "ok":
                yield f"{name}: {result}"
    serving = output / "serving" / NAME
    for folder in serving.iterdir() if serving.exists() else ():
        if folder.is_dir() and not folder.name.isdigit():
            yield f"the serving folder contains an incomplete folder: {folder}"
    if replay.versions:
        try:
            predict_row(serving / replay.versions[-1])
        except Exception as error:  # TensorFlow raises various types.
            yield f"version {replay.versions[-1]} does not predict: {error}"


def find_half_artifacts(replay: Replay) -> Iterator[str]:
    """Yields artifacts without files, and artifact folders without an execution.

    No later run would find or delete them. The files of a stopped component are not reported: its
    execution is recorded, so they are deleted with its run.
    """
    output = replay.output / NAME
    with closing(sqlite3.connect(output / "metadata.db")) as connection:
        executions = {row for (row,) in connection.execute("SELECT id FROM Execution")}
        live = connection.execute("SELECT uri FROM Artifact WHERE state = ?", [_LIVE]).fetchall()
    for folder in (output / "pipeline_root").glob("*/*/[0-9]*"):
        if int(folder.name) not in executions:
            yield f"an artifact's folder has no execution in the metadata: {folder}"
    for (uri,) in live:
        if not Path(uri).exists():
            yield f"an artifact has no files: {uri}"


_LIVE = 2
"""The state of a live artifact in ML Metadata."""


def predict_row(folder: Path) -> dict[str, Any]:
    """Loads a version, and returns its prediction for a row of missing values."""
    import tensorflow as tf

    serve = tf.saved_model.load(str(folder)).signatures["serving_raw"]
    _, specs = serve.structured_input_signature
    row = {name: tf.zeros([1, 1], spec.dtype) for name, spec in specs.items()}
    return dict(serve(**row))


def check_night(
    before: Sequence[Night], night: Night, code: int, events: list[LoggedEvent], notified: list[str]
) -> Iterator[str]:
    """Yields deviations of an undisturbed night from docs/scheduling.md.

    Args:
      before: the earlier nights.
      night: the night to check.
      code: the exit code of the last `schedule --once`.
      events: the events that the night has added to the history.
      notified: the occasions of the notifications that the webhook received.
    """
    finished = [event for event in events if event.kind is EventKind.FINISHED]
    # The last day with rows that has arrived determines the outcome.
    is_after_late_data = bool(before) and before[-1].data is DayData.LATE
    arrived = [day for day in before if day.data not in WITHOUT_ROWS]
    arrived += [night] if night.data not in (*WITHOUT_ROWS, DayData.LATE) else []
    is_refused = arrived[-1].data in REFUSED
    due = not is_refused and (night.data in TRAINED_AT_ONCE or is_after_late_data)
    if len(finished) != due:
        yield f"{len(finished)} runs were finished, expected {int(due)}"
    if code != (expected := EXIT_UNUSABLE if is_refused else EXIT_PUSHED):
        yield f"exit code {code}, expected {expected}"
    occasion = NOTIFIED.get(night.data)
    if occasion and occasion not in notified:
        yield f"no notification of {occasion} was sent: {notified}"
    if night.data is DayData.POISONED and EventKind.PUSHED in {event.kind for event in events}:
        yield "a model of shuffled labels was pushed"
