"""The event log of a pipeline: every decision and what came of it, in an SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from components.disk import disk_full, says_full
from pipeline.records import span_sets
from trainer_module.errors import ConfigError, TryLaterError

SCHEMA_VERSION = 4
"""What the file has as its `user_version`. The first had events alone, with all spans written out
in each; the third and the fourth have kinds of events that the one before does not know."""
_PACKED_SINCE = 2
BUSY_SECONDS = 10.0
"""How long one process waits for another that writes."""

_CREATE = """
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL,
  kind TEXT NOT NULL,
  run TEXT,
  message TEXT NOT NULL,
  details TEXT NOT NULL
)"""


class EventKind(StrEnum):
    """What kind of event it is."""

    DUE = "due"
    """A run was decided on; the message says why."""
    SKIPPED = "skipped"
    """No run was started, for a firing of the clock or at all; the message says why."""
    STARTED = "started"
    """A run began; details: `window`, the numbers of its spans, `newest`, `warm_start`, `process`
    (its id)."""
    CACHED = "cached"
    """Components had nothing to do; details: `components`."""
    INGESTED = "ingested"
    """A span was read, not taken from the cache; details: `span`, `examples`."""
    UNUSABLE_SPAN = "unusable span"
    """A span was refused: it cannot be read, breaks the schema or has drifted; details: `span`,
    `signature`, `has_drifted`, and the span it was `compared_with`."""
    EMPTY_SPAN = "empty span"
    """A span holds no row, and is waited for; details: `span`, `signature`."""
    SPAN_ACCEPTED = "span accepted"
    """Somebody accepted a span that had drifted; details: `span`, `signature`, `digest`,
    `reason`."""
    ANOMALY = "anomaly"
    """What is odd about a span; details: `span`, `anomalies` by column, how many `columns`."""
    DRIFT = "drift"
    """A span has drifted and is used all the same; details: `span`, `signature`."""
    SKEW_CHECKED = "skew checked"
    """Requests were compared with the training data; details: `through` (time and path of the last
    file), `version`, `rows`, and the `columns` that are skewed."""
    SKEW = "skew"
    """Columns of requests have become unlike the training data; details: `columns`, `version`,
    `rows`."""
    BLESSED = "blessed"
    NOT_BLESSED = "not blessed"
    PUSHED = "pushed"
    """Details: `version`, `path`, `model`, `metrics`, `window`, `strategy`."""
    WAITS = "waits"
    """A blessed model was not pushed; details: as of a push, `reason`, and its artifact."""
    APPROVED = "approved"
    """Somebody had a model pushed that waited; details: `version`, `waited`, `reason`."""
    HELD = "held"
    """Nothing is pushed from now on; details: `reason`, `until`, `stops_runs`."""
    RELEASED = "released"
    FINISHED = "finished"
    """A run ended well; details: `status`, `exit_code`, and the signatures of its spans."""
    FAILED = "failed"
    """A run failed, was stopped or took too long; details: `exit_code`."""
    ROLLED_BACK = "rolled back"
    """Details: `version` that is in service now, `copy_of`."""
    WITHDRAWN = "withdrawn"
    """A version is marked as bad; details: `version`."""
    TO_DELETE = "to be deleted"
    """Old versions and runs go at the end of the next run, though no config asks for it."""
    DELETED = "deleted"
    """Details: `versions` with the `lineage` of each, `runs`, how many `artifacts`, `bytes`."""
    CLOCK_SET_BACK = "clock set back"
    """Earlier events lie in the future of the clock; they happened before this one."""
    RECOVERED = "recovered"
    """What was wrong at earlier looks is over, without a run."""
    STALE = "stale"
    """Nothing was pushed for `notify.stale_after`; details: `over`, whether something was again."""
    LEFT_OUT = "left out"
    """Spans wait until somebody does something about them."""
    NOTIFICATION_FAILED = "notification failed"


_SELECT = "SELECT id, at, kind, run, message, details FROM events"


@dataclass(frozen=True)
class LoggedEvent:
    """One recorded event."""

    id: int
    at: datetime
    kind: EventKind
    run: str | None
    message: str
    details: dict[str, Any] = field(default_factory=dict)


class EventLog:
    """Appends and finds events; safe for several processes at once."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet: each call opens the file, and the first event makes it."""
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
        """Appends an event.

        Args:
          kind: of the event.
          message: a sentence for people.
          run: the id of the run it belongs to.
          at: when; default: now.
          details: for programs, as JSON.

        Raises:
          TryLaterError: the file is locked.
          DiskFullError: there is no room for it.
          ConfigError: it is corrupt, or of a newer Scopeline.
        """
        at = (at or datetime.now()).astimezone()
        with self._connection(writes=True) as connection:
            packed = json.dumps(span_sets.pack(connection, details))
            row = (at.isoformat(), kind.value, run, message, packed)
            connection.execute(
                "INSERT INTO events (at, kind, run, message, details) VALUES (?, ?, ?, ?, ?)", row
            )

    def events(
        self, *kinds: EventKind, run: str | None = None, newest: int | None = None
    ) -> list[LoggedEvent]:
        """Events in the order they were recorded.

        Args:
          kinds: only these; default: all.
          run: only of this run.
          newest: at most so many, the newest ones.
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
            span_sets.unpack(connection, [event.details for event in found])
        return found

    def last(self, *kinds: EventKind) -> LoggedEvent | None:
        """The newest event of some kinds."""
        found = self.events(*kinds, newest=1)
        return found[0] if found else None

    def first(self) -> LoggedEvent | None:
        """The oldest event."""
        if not self._path.exists():
            return None
        with self._connection() as connection:
            row = connection.execute(f"{_SELECT} ORDER BY id LIMIT 1").fetchone()
            return None if row is None else _event(row)

    def known_digests(self) -> dict[str, str]:
        """The digests of all spans that a run has read, by signature."""
        if not self._path.exists():
            return {}
        with self._connection(writes=True) as connection:
            return span_sets.known_digests(connection)

    @contextmanager
    def _connection(self, writes: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction; a file of an earlier version is made a current one if it writes."""
        try:
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as connection:
                _prepare(connection, self._path, writes)
                with connection:
                    yield connection
        except sqlite3.OperationalError as error:
            if says_full(error):
                raise disk_full(self._path) from None
            is_busy = error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            raise (TryLaterError if is_busy else ConfigError)(
                f"{self._path}: the ledger cannot be used ({error})"
            ) from None
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"{self._path}: this is no ledger, or it is corrupt ({error}); move it aside, and "
                "a new one is begun"
            ) from None


def _prepare(connection: sqlite3.Connection, path: Path, writes: bool) -> None:
    """Makes the tables in a new file, and those that one of an earlier version lacks.

    Raises:
      ConfigError: a newer Scopeline wrote the file.
    """
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: written by a newer Scopeline (format {version}, this one knows "
            f"{SCHEMA_VERSION}); use that one, or another --output"
        )
    if version < SCHEMA_VERSION and (writes or version == 0):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) < SCHEMA_VERSION:  # Another process may have been first.
                _upgrade(connection)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _upgrade(connection: sqlite3.Connection) -> None:
    for statement in (_CREATE, span_sets.CREATE, span_sets.CREATE_INDEX):
        connection.execute(statement)
    rows = "SELECT id, details FROM events"
    is_packed = _version(connection) >= _PACKED_SINCE
    for number, details in [] if is_packed else connection.execute(rows).fetchall():
        packed = json.dumps(span_sets.pack(connection, json.loads(details)))
        connection.execute("UPDATE events SET details = ? WHERE id = ?", (packed, number))
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _event(row: tuple[int, str, str, str | None, str, str]) -> LoggedEvent:
    number, at, kind, run, message, details = row
    return LoggedEvent(
        number, datetime.fromisoformat(at), EventKind(kind), run, message, json.loads(details)
    )
