"""The event log of a pipeline: all decisions and outcomes, in an SQLite file.

A state of a span is written once, and events refer to its row. If the window is all spans, each
run's events list all of them: written out, the file would grow with the square of the days; as
ranges of numbers, a thousand days take as much as three.
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
"""The seconds to wait for another process that writes."""

_WINDOW, _SPANS = "window", "spans"
"""The keys of packed details: numbers of spans, and signatures or states by number."""
_RANGES, _HAVE_DIGESTS = "ranges", "have_digests"

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
    """A run became due; the message says why."""
    SKIPPED = "skipped"
    """A run was not started, for a firing of cron or at all; the message has the reason."""
    STARTED = "started"
    """A run began; details: `window`, the numbers of its spans, `newest`, `warm_start`, `process`
    (its id).
    """
    CACHED = "cached"
    """Components were taken from the cache; details: `components`."""
    INGESTED = "ingested"
    """A span was read, not taken from the cache; details: `span`, `examples`."""
    UNUSABLE_SPAN = "unusable span"
    """A span was refused: it cannot be read, breaks the schema or has drifted; details: `span`,
    `signature`, `has_drifted`, and the span it was `compared_with`.
    """
    EMPTY_SPAN = "empty span"
    """A span has no rows yet; details: `span`, `signature`."""
    SPAN_ACCEPTED = "span accepted"
    """A user accepted a span that had drifted; details: `span`, `signature`, `digest`, `reason`."""
    ANOMALY = "anomaly"
    """Anomalies of a span; details: `span`, `anomalies` by column, the number of `columns`."""
    DRIFT = "drift"
    """A span has drifted and is used nevertheless; details: `span`, `signature`."""
    SKEW_CHECKED = "skew checked"
    """Requests were compared with the training data; details: `through` (time and path of the last
    file), `version`, `rows`, and the `columns` that are skewed.
    """
    SKEW = "skew"
    """Columns of requests newly differ from the training data; details: `columns`, `version`,
    `rows`.
    """
    BLESSED = "blessed"
    NOT_BLESSED = "not blessed"
    PUSHED = "pushed"
    """Details: `version`, `path`, `model`, `metrics`, `window`, `strategy`, `model_kind`."""
    WAITS = "waits"
    """A blessed model was not pushed; details: as of a push, `reason`, and its artifact."""
    APPROVED = "approved"
    """A user approved a model that waited, and it was pushed; details: `version`, `waited`,
    `reason`.
    """
    HELD = "held"
    """A hold begins, during which nothing is pushed; details: `reason`, `until`, `stops_runs`."""
    RELEASED = "released"
    FINISHED = "finished"
    """A run ended well; details: `status`, `exit_code`, and the signatures of its spans."""
    FAILED = "failed"
    """A run failed, was stopped or timed out; details: `exit_code`."""
    ROLLED_BACK = "rolled back"
    """Details: `version` that is in service now, `copy_of`."""
    WITHDRAWN = "withdrawn"
    """A version is marked as bad; details: `version`, and the `command` that marked it."""
    TO_DELETE = "to be deleted"
    """Old versions and runs will be deleted by the next run, although no config sets `keep`."""
    DELETED = "deleted"
    """Details: `versions` with the `lineage` of each, `runs`, the number of `artifacts`,
    `bytes`.
    """
    CLOCK_SET_BACK = "clock set back"
    """The last push lies in the future of the clock; it was made before this event."""
    RECOVERED = "recovered"
    """A problem of earlier checks is over, without a run."""
    STALE = "stale"
    """A push is overdue by `notify.stale_after`; details: `over`, whether a push has ended that."""
    LEFT_OUT = "left out"
    """Spans that are left out until a user acts."""
    NOTIFICATION_FAILED = "notification failed"


_SELECT = "SELECT id, at, kind, run, message, details FROM events"


@dataclass(frozen=True)
class LoggedEvent:
    """A recorded event of the log."""

    id: int
    at: datetime
    kind: EventKind
    run: str | None
    message: str
    details: dict[str, Any] = field(default_factory=dict)


class EventLog:
    """A log that appends and finds events; safe for several processes at once."""

    def __init__(self, path: Path) -> None:
        """Stores the path: each call opens the file, and the first event creates it."""
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
          kind: the kind of the event.
          message: a sentence for people.
          run: the id of the run it belongs to.
          at: the time; default: now.
          details: values for programs, as JSON.

        Raises:
          TryLaterError: the file is locked.
          DiskFullError: there is no room for it.
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
          newest: only this number of newest events.
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
            found = [_event(row) for row in reversed(rows)]
            _unpack(connection, [event.details for event in found])
        return found

    def last(self, *kinds: EventKind) -> LoggedEvent | None:
        """Returns the newest event of some kinds."""
        found = self.events(*kinds, newest=1)
        return found[0] if found else None

    def first(self) -> LoggedEvent | None:
        """Returns the oldest event of the log."""
        if not self._path.exists():
            return None
        with self._connection() as connection:
            row = connection.execute(f"{_SELECT} ORDER BY id LIMIT 1").fetchone()
            return None if row is None else _event(row)

    def known_digests(self) -> dict[str, str]:
        """Returns the digests of all spans that a run has read, by signature."""
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
                f"{self._path}: this file is not a ledger, or it is corrupt ({error}); move it "
                "away, and the next command creates a new one"
            ) from None


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Creates the tables in a new file.

    Raises:
      ConfigError: another version of Scopeline wrote the file.
    """
    if _version(connection) == 0:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have been faster; the very first format had no version number.
            if _version(connection) == 0 and not _has_events(connection):
                for statement in (*_CREATE, f"PRAGMA user_version = {SCHEMA_VERSION}"):
                    connection.execute(statement)
    version = _version(connection)
    if version != SCHEMA_VERSION:
        relation = "a newer" if version > SCHEMA_VERSION else "an earlier"
        raise ConfigError(
            f"{path}: written by {relation} Scopeline (format {version}, this Scopeline reads "
            f"{SCHEMA_VERSION}); use that Scopeline, or another --output"
        )


def _has_events(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone()
    return found is not None


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _event(row: tuple[int, str, str, str | None, str, str]) -> LoggedEvent:
    number, at, kind, run, message, details = row
    return LoggedEvent(
        number, datetime.fromisoformat(at), EventKind(kind), run, message, json.loads(details)
    )


def _pack(connection: sqlite3.Connection, details: dict[str, Any]) -> dict[str, Any]:
    """Returns details in their stored form."""
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
    """Returns the row of a span's signature or state; adds a digest to a row without one."""
    is_state = isinstance(state, dict)
    signature, digest = (state["signature"], state["digest"]) if is_state else (state, None)
    found = connection.execute(
        "SELECT id, digest FROM span_states WHERE span = ? AND signature = ? "
        "AND (? IS NULL OR digest IS NULL OR digest = ?) ORDER BY id LIMIT 1",
        (span, signature, digest, digest),
    ).fetchone()
    if found is None:
        insert = "INSERT INTO span_states (span, signature, digest) VALUES (?, ?, ?)"
        return int(connection.execute(insert, (span, signature, digest)).lastrowid or 0)
    row, known = found
    if known is None and digest is not None:
        connection.execute("UPDATE span_states SET digest = ? WHERE id = ?", (digest, row))
    return int(row)


def _read_rows(connection: sqlite3.Connection) -> dict[int, tuple[str, str, str | None]]:
    query = "SELECT id, span, signature, digest FROM span_states"
    return {
        row: (span, signature, digest) for row, span, signature, digest in connection.execute(query)
    }


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Returns ascending numbers as ranges, each a pair of its first and last number."""
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
