"""What events say of spans, kept small in the ledger: a state of a span once, events its row.

With a window of all spans there are, the events of every run name all of them. Written out, the
ledger would grow with the square of the days; as ranges of numbers an event of a thousand days is
as long as one of three.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

CREATE = """
CREATE TABLE IF NOT EXISTS span_states (
  id INTEGER PRIMARY KEY,
  span TEXT NOT NULL,
  signature TEXT NOT NULL,
  digest TEXT
)"""
CREATE_INDEX = "CREATE INDEX IF NOT EXISTS span_states_of ON span_states (span, signature)"

WINDOW, SPANS = "window", "spans"
"""The details that are packed: numbers of spans, and by number the signatures, or the states."""
_RANGES, _HAVE_DIGESTS = "ranges", "have_digests"


def pack(connection: sqlite3.Connection, details: dict[str, Any]) -> dict[str, Any]:
    """Details as the ledger stores them; what is packed already stays as it is."""
    packed = dict(details)
    window, spans = details.get(WINDOW), details.get(SPANS)
    if isinstance(window, list) and window == sorted(set(window)):
        packed[WINDOW] = {_RANGES: _ranges(window)}
    if isinstance(spans, dict) and _RANGES not in spans:
        rows = sorted(_row(connection, span, state) for span, state in spans.items())
        have_digests = any(isinstance(state, dict) for state in spans.values())
        packed[SPANS] = {_RANGES: _ranges(rows), _HAVE_DIGESTS: have_digests}
    return packed


def unpack(connection: sqlite3.Connection, all_details: list[dict[str, Any]]) -> None:
    """Makes of the details of events, in place, what they were before they were packed."""
    rows: dict[int, tuple[str, str, str | None]] = {}
    for details in all_details:
        window, spans = details.get(WINDOW), details.get(SPANS)
        if isinstance(window, dict):
            details[WINDOW] = list(_numbers(window[_RANGES]))
        if isinstance(spans, dict) and _RANGES in spans:
            rows = rows or _read_rows(connection)
            chosen = (rows[number] for number in _numbers(spans[_RANGES]))
            details[SPANS] = {
                span: {"signature": signature, "digest": digest}
                if spans[_HAVE_DIGESTS]
                else signature
                for span, signature, digest in chosen
            }


def known_digests(connection: sqlite3.Connection) -> dict[str, str]:
    """The digests that are known, by signature."""
    query = "SELECT signature, digest FROM span_states WHERE digest <> '' ORDER BY id"
    return dict(connection.execute(query).fetchall())


def _row(connection: sqlite3.Connection, span: str, state: Any) -> int:
    """The row of a span's signature, or of its state: with its digest, which may come later."""
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
    """Ascending numbers as pairs of the first and the last of those without a gap."""
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
