"""The event log of a pipeline, with all decisions and results, in a SQLite file.

The table `span_states` has a row for each state of a span, and events contain ranges of its ids.
With an unlimited window, each run's events refer to all spans. If they contained all states, the
size of the file would grow with the square of the number of days.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from components.disk import disk_full, is_disk_full
from trainer_module.errors import ConfigError, TryLaterError

SCHEMA_VERSION = 4
"""The `user_version` of the SQLite file."""
BUSY_SECONDS = 10.0
"""The time limit for waiting while another process writes, in seconds."""

_WINDOW, _SPANS = "window", "spans"
"""The keys of details that are stored as ranges: the numbers of spans, and states by number."""
_RANGES, _HAVE_DIGESTS = "ranges", "have_digests"
"""The keys of the stored form: the ranges, and whether the states have digests."""

_CREATE = (
    """
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL,
  kind TEXT NOT NULL,
  run TEXT,
  message TEXT NOT NULL,
  details TEXT NOT NULL
)""",
    """
CREATE TABLE span_states (
  id INTEGER PRIMARY KEY,
  span TEXT NOT NULL,
  signature TEXT NOT NULL,
  digest TEXT
)""",
    "CREATE INDEX span_states_of ON span_states (span, signature)",
)


class EventKind(StrEnum):
    """The kind of an event."""

    DUE = "due"
    """A run became due; the message has the reason."""
    SKIPPED = "skipped"
    """A due run was not started; the message has the reason."""
    STARTED = "started"
    """A run began; details: `window` (the numbers of its spans), `newest`, `warm_start`, `process`
    (the process id).
    """
    CACHED = "cached"
    """Components were taken from the cache; details: `components`."""
    INGESTED = "ingested"
    """A run read a span, which was not in the cache; details: `span`, `examples`."""
    UNUSABLE_SPAN = "unusable span"
    """A span was refused, as its files are invalid, it has anomalies or it has drifted; details:
    `span`, `signature`, `has_drifted`, `compared_with` (the span for the measurement of drift).
    """
    EMPTY_SPAN = "empty span"
    """A span has no rows yet; details: `span`, `signature`."""
    SPAN_ACCEPTED = "span accepted"
    """A user accepted a span that had drifted; details: `span`, `signature`, `digest`, `reason`."""
    ANOMALY = "anomaly"
    """A span has anomalies; details: `span`, `anomalies` (a sentence per column), `columns` (their
    number).
    """
    DRIFT = "drift"
    """A span has drifted, but was not refused; details: `span`, `signature`."""
    SKEW_CHECKED = "skew checked"
    """Requests were compared with the training data; details: `through` (time and path of the last
    file), `version`, `rows`, `columns` (the skewed columns).
    """
    SKEW = "skew"
    """Columns of requests began to differ from the training data; details: `columns`, `version`,
    `rows`.
    """
    BLESSED = "blessed"
    NOT_BLESSED = "not blessed"
    PUSHED = "pushed"
    """A model was pushed; details: `version`, `path`, `model`, `metrics`, `window`, `strategy`,
    `model_kind`.
    """
    WAITS = "waits"
    """A blessed model was not pushed; details: the fields of `WaitingSummary`, `superseded`,
    `metrics`, `window`, `strategy`, `model_kind`.
    """
    APPROVED = "approved"
    """A user approved a waiting model, which was pushed; details: `version`, `waited`, `reason`."""
    HELD = "held"
    """A hold began, during which no model is pushed; details: `reason`, `until`, `stops_runs`."""
    RELEASED = "released"
    """A hold ended."""
    FINISHED = "finished"
    """A run ended without a failure; details: `status`, `exit_code`, `window`, `spans` (the states
    of its spans), `config` (the fingerprint).
    """
    FAILED = "failed"
    """A run failed, was stopped or timed out; details: `exit_code`."""
    ROLLED_BACK = "rolled back"
    """An earlier version is in service again; details: `version` (the version in service),
    `copy_of`.
    """
    WITHDRAWN = "withdrawn"
    """A version must not serve any more; details: `version`, `command` (which withdrew it)."""
    TO_DELETE = "to be deleted"
    """The next run will delete old versions and runs, as the config does not set `keep`."""
    DELETED = "deleted"
    """Old versions and runs were deleted; details: `versions` (each with its `lineage`), `runs`,
    `artifacts` (their number), `bytes`.
    """
    CLOCK_SET_BACK = "clock set back"
    """The time of the last push is later than the clock, which was set back since."""
    RECOVERED = "recovered"
    """A problem of earlier checks ended without a run."""
    STALE = "stale"
    """A push is overdue by `notify.stale_after`; details: `over` (true if a model was pushed
    since).
    """
    LEFT_OUT = "left out"
    """Spans are not trained on until a user acts."""
    NOTIFICATION_FAILED = "notification failed"


_SELECT = "SELECT id, at, kind, run, message, details FROM events"


@dataclass(frozen=True)
class LoggedEvent:
    """An event of the event log."""

    id: int
    at: datetime
    kind: EventKind
    run: str | None
    message: str
    details: dict[str, Any] = field(default_factory=dict)


class EventLog:
    """A log of events in a SQLite file, which several processes may use at the same time."""

    def __init__(self, path: Path) -> None:
        """Stores the path; each method opens the file, and the first event creates it."""
        self._path = path

    def record(
        self,
        kind: EventKind,
        message: str,
        *,
        run: str | None = None,
        at: datetime | None = None,
        **details: Any,
    ) -> None:
        """Appends an event to the log.

        Args:
          message: a sentence for people.
          run: the id of the run that the event belongs to, or None for events outside of runs.
          at: the time of the event; default: now.
          details: values for programs, which JSON can store.

        Raises:
          TryLaterError: the file is locked.
          DiskFullError: the disk is full.
          ConfigError: the file is corrupt, or another version of Scopeline wrote it.
        """
        at = (at or datetime.now()).astimezone()
        with self._connection() as connection:
            packed = json.dumps(_pack(connection, details))
            row = (at.isoformat(), kind.value, run, message, packed)
            connection.execute(
                "INSERT INTO events (at, kind, run, message, details) VALUES (?, ?, ?, ?, ?)", row
            )

    def events(
        self, *kinds: EventKind, run: str | None = None, newest: int | None = None
    ) -> list[LoggedEvent]:
        """Returns events in the order in which they were recorded.

        Args:
          kinds: only these kinds; default: all.
          run: only events of this run.
          newest: the number of newest events to return; default: all.
        """
        if not self._path.exists():
            return []
        conditions, values = ["1"], []
        if kinds:
            conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
            values += [kind.value for kind in kinds]
        if run is not None:
            conditions.append("run = ?")
            values.append(run)
        query = f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
        with self._connection() as connection:
            rows = connection.execute(query, (*values, newest or -1)).fetchall()
            events = [_event(row) for row in reversed(rows)]
            _unpack(connection, [event.details for event in events])
        return events

    def last(self, *kinds: EventKind) -> LoggedEvent | None:
        """Returns the newest event of the kinds, or None if there is no such event."""
        events = self.events(*kinds, newest=1)
        return events[0] if events else None

    def first(self) -> LoggedEvent | None:
        """Returns the oldest event of the log, or None if the log is empty."""
        if not self._path.exists():
            return None
        with self._connection() as connection:
            row = connection.execute(f"{_SELECT} ORDER BY id LIMIT 1").fetchone()
            return None if row is None else _event(row)

    def known_digests(self) -> dict[str, str]:
        """Returns the digests of all recorded states of spans, by signature."""
        if not self._path.exists():
            return {}
        with self._connection() as connection:
            query = "SELECT signature, digest FROM span_states WHERE digest <> '' ORDER BY id"
            return dict(connection.execute(query).fetchall())

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection within one transaction."""
        try:
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as connection:
                _prepare(connection, self._path)
                with connection:
                    yield connection
        except sqlite3.OperationalError as error:
            if is_disk_full(error):
                raise disk_full(self._path) from None
            is_busy = error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            raise (TryLaterError if is_busy else ConfigError)(
                f"{self._path}: the ledger cannot be used ({error})"
            ) from None
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"{self._path}: this file is not a ledger, or is corrupt ({error}); move the file "
                "away, and the next command creates a new ledger"
            ) from None


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Creates the tables in a new file.

    Raises:
      ConfigError: another version of Scopeline wrote the file.
    """
    if _version(connection) == 0:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have created the tables in the meantime. A file with events and
            # without a version number has the first format.
            if _version(connection) == 0 and not _has_events(connection):
                for statement in (*_CREATE, f"PRAGMA user_version = {SCHEMA_VERSION}"):
                    connection.execute(statement)
    version = _version(connection)
    if version != SCHEMA_VERSION:
        relation = "a newer" if version > SCHEMA_VERSION else "an earlier"
        raise ConfigError(
            f"{path}: written by {relation} version of Scopeline (format {version}, but this "
            f"version reads format {SCHEMA_VERSION}); use that version, or another --output"
        )


def _has_events(connection: sqlite3.Connection) -> bool:
    row = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone()
    return row is not None


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _event(row: tuple[int, str, str, str | None, str, str]) -> LoggedEvent:
    number, at, kind, run, message, details = row
    return LoggedEvent(
        number, datetime.fromisoformat(at), EventKind(kind), run, message, json.loads(details)
    )


def _pack(connection: sqlite3.Connection, details: dict[str, Any]) -> dict[str, Any]:
    """Returns details in their stored form, with ranges; adds rows for new states of spans."""
    packed = dict(details)
    window, spans = details.get(_WINDOW), details.get(_SPANS)
    if isinstance(window, list) and window == sorted(set(window)):
        packed[_WINDOW] = {_RANGES: _ranges(window)}
    if isinstance(spans, dict):
        rows = sorted(_row(connection, span, state) for span, state in spans.items())
        have_digests = any(isinstance(state, dict) for state in spans.values())
        packed[_SPANS] = {_RANGES: _ranges(rows), _HAVE_DIGESTS: have_digests}
    return packed


def _unpack(connection: sqlite3.Connection, all_details: list[dict[str, Any]]) -> None:
    """Restores the details of events in place from their stored form."""
    rows: dict[int, tuple[str, str, str | None]] = {}
    for details in all_details:
        window, spans = details.get(_WINDOW), details.get(_SPANS)
        if isinstance(window, dict):
            details[_WINDOW] = list(_numbers(window[_RANGES]))
        if isinstance(spans, dict) and _RANGES in spans:
            rows = rows or _read_rows(connection)
            chosen = (rows[number] for number in _numbers(spans[_RANGES]))
            details[_SPANS] = {
                span: {"signature": signature, "digest": digest}
                if spans[_HAVE_DIGESTS]
                else signature
                for span, signature, digest in chosen
            }


def _row(connection: sqlite3.Connection, span: str, state: Any) -> int:
    """Returns the id of the row for a state of a span, which is inserted or updated if necessary.

    Args:
      span: the number of the span.
      state: the signature, or a mapping with signature and digest.
    """
    has_digest = isinstance(state, dict)
    signature, digest = (state["signature"], state["digest"]) if has_digest else (state, None)
    row = connection.execute(
        "SELECT id, digest FROM span_states WHERE span = ? AND signature = ? "
        "AND (? IS NULL OR digest IS NULL OR digest = ?) ORDER BY id LIMIT 1",
        (span, signature, digest, digest),
    ).fetchone()
    if row is None:
        insert = "INSERT INTO span_states (span, signature, digest) VALUES (?, ?, ?)"
        return int(connection.execute(insert, (span, signature, digest)).lastrowid or 0)
    row_id, stored_digest = row
    if stored_digest is None and digest is not None:
        connection.execute("UPDATE span_states SET digest = ? WHERE id = ?", (digest, row_id))
    return int(row_id)


def _read_rows(connection: sqlite3.Connection) -> dict[int, tuple[str, str, str | None]]:
    query = "SELECT id, span, signature, digest FROM span_states"
    return {
        row: (span, signature, digest) for row, span, signature, digest in connection.execute(query)
    }


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Returns ascending numbers as ranges, which are pairs of a first and a last number."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def _numbers(ranges: list[list[int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)
