"""The log without a server: rows that are gathered and written, and files that come and go."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from log_folder import written
from prometheus_client import CollectorRegistry

from pipeline.serving.model import EXAMPLES, RAW, Model
from pipeline.serving.request_log.files import (
    finish_left,
    make_room,
)
from pipeline.serving.request_log.gathering import Answered, GatheredRows
from pipeline.serving.request_log.log import RequestLog, is_sampled
from pipeline.serving.request_log.options import LogOptions

Rows = list[dict[str, Any]]


def test_a_sample_is_a_share_and_the_same_everywhere() -> None:
    names = [f"request {n}" for n in range(10_000)]
    chosen = [name for name in names if is_sampled(name, 0.1)]
    assert 900 < len(chosen) < 1100
    assert set(chosen) <= {name for name in names if is_sampled(name, 0.2)}
    assert all(is_sampled(name, 1) for name in names)


def test_a_sample_of_requests_that_were_asked_together_keeps_their_rows(model: Model) -> None:
    fares = np.arange(6.0)
    counts = [("a", 2), ("b", 1), ("c", 3)]
    asked = Answered(counts, 0.0, model, RAW, {"fare": fares}, {"value": -fares})
    assert asked.only(lambda name: True) is asked
    some = asked.only(lambda name: name != "b")
    assert (some.requests, some.rows) == ([("a", 2), ("c", 3)], 5)
    assert some.columns["fare"].tolist() == [0, 1, 3, 4, 5]
    assert some.answers["value"].tolist() == [-0.0, -1, -3, -4, -5]


def test_rows_are_gathered_in_their_order_whatever_their_widths(model: Model) -> None:
    def answered(start: int, rows: int, width: int, signature: str = RAW) -> Answered:
        numbers = np.arange(start, start + rows, dtype=np.float32)
        lists = np.repeat(numbers[:, np.newaxis], width, axis=1)
        columns = {"fare": numbers, "tags": lists}
        return Answered([(f"{start}", rows)], 1.5, model, signature, columns, {"value": -numbers})

    gathered, ends = GatheredRows(model, RAW), [0, 1, 4, 5, 105, 109]
    for start, end, width in zip(ends, ends[1:], [2, 2, 3, 1, 1], strict=False):
        one = answered(start, end - start, width)
        assert gathered.takes(one)
        gathered.add(one, one.size)
    assert gathered.rows == 109
    assert len(gathered.column("fare")) == 1, "not an array for each request"
    assert np.concatenate(gathered.column("fare")).tolist() == list(range(109))
    lists = [values for part in gathered.column("tags") for values in part.tolist()]
    assert [values[0] for values in lists] == list(range(109))
    assert [len(lists[n]) for n in (0, 3, 4, 5, 108)] == [2, 2, 3, 1, 1]
    assert gathered.answers["value"].tolist() == [-n for n in range(109)]
    assert not gathered.takes(answered(109, 1, 1, EXAMPLES))
    assert not gathered.takes(answered(109, 1000, 1))


@pytest.mark.parametrize(
    ("width", "signatures"), [(1, [RAW, EXAMPLES]), (5000, [RAW])], ids=["in turns", "wide"]
)
def test_rows_that_wait_take_about_the_bytes_that_they_are_counted_as(
    model: Model, tmp_path: Path, width: int, signatures: list[str]
) -> None:
    log = RequestLog(LogOptions(tmp_path), CollectorRegistry())  # Nothing is written.
    lists, numbers = np.full((1, width), b"x", object), np.zeros(1)
    columns = {"tags": lists, **{f"c{n}": numbers for n in range(10)}}
    requests = 1000 // width or 1
    counted = 0
    tracemalloc.start()
    try:
        for place in range(requests):
            for signature in signatures:
                name = f"{place}-{signature}"
                one = Answered([(name, 1)], 1.5, model, signature, columns, {"value": numbers})
                counted += one.size + one.size_of_arrays
                log.note(one)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * counted


class Noted:
    """A log that is written to without a server."""

    def __init__(self, model: Model, rows: Rows, options: LogOptions) -> None:
        self.registry = CollectorRegistry()
        self.hour = datetime(2026, 1, 5, 10, 30, tzinfo=UTC)
        self.log = RequestLog(options, self.registry, lambda: self.hour)
        self._model = model
        self._columns = {
            column.request: _array([row[column.name] for row in rows], column.width, column.dtype)
            for column in model.interface.columns
        }
        self._answers = model.predict(self._columns)
        self.log.start()

    def note(self, name: str) -> None:
        rows = len(next(iter(self._columns.values())))
        answered = Answered(
            [(name, rows)], time.time(), self._model, RAW, self._columns, self._answers
        )
        self.log.note(answered)

    def count(self, outcome: str) -> float:
        found = self.registry.get_sample_value(
            "scopeline_request_log_rows_total", {"outcome": outcome}
        )
        assert found is not None
        return found


def _array(values: list[Any], width: int | None, dtype: str) -> np.ndarray:
    if width != 1:
        longest = max(map(len, values), default=0) or 1
        padded = [[*(v.encode() for v in row), *[b""] * (longest - len(row))] for row in values]
        return np.array(padded, object)
    if dtype == "string":
        return np.array([(value or "").encode() for value in values], object)
    return np.array([np.nan if value is None else value for value in values], dtype)


def wait_for(test: Any, seconds: float = 10.0) -> None:
    limit = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.fixture
def noted(model: Model, rows: Rows, tmp_path: Path) -> Iterator[Noted]:
    found = Noted(model, rows[:3], LogOptions(tmp_path))
    yield found
    found.log.close()


def test_an_hour_has_a_file_of_its_own(noted: Noted, tmp_path: Path) -> None:
    noted.note("a")
    wait_for(lambda: noted.count("written") == 3)
    assert not written(tmp_path)
    noted.hour = noted.hour.replace(day=6, hour=0)
    wait_for(lambda: len(written(tmp_path)) == 1)
    noted.note("b")
    noted.log.close()
    first, second = written(tmp_path)
    assert [file.parent.name for file in (first, second)] == ["2026-01-05", "2026-01-06"]
    assert pq.read_table(second)["request_id"].to_pylist() == ["b/0", "b/1", "b/2"]
    assert not list((tmp_path / ".unfinished").iterdir())


def test_what_a_killed_process_has_written_is_not_lost(noted: Noted, tmp_path: Path) -> None:
    for name in ("a", "b"):
        noted.note(name)
        wait_for(lambda of=name: noted.count("written") == (3 if of == "a" else 6))
    (stream,) = (tmp_path / ".unfinished").iterdir()
    finish_left(tmp_path)  # It is held by a process that is at work.
    assert stream.exists()
    left = tmp_path / "other" / ".unfinished" / stream.name
    left.parent.mkdir(parents=True)
    left.write_bytes(stream.read_bytes()[:-40])
    (left.parent / f"2026-01-05T09-0000-000000{stream.suffix}").touch()
    finish_left(tmp_path / "other")
    (file,) = written(tmp_path / "other")
    assert pq.read_table(file)["request_id"].to_pylist() == ["a/0", "a/1", "a/2"]
    assert not list(left.parent.iterdir())


def test_the_oldest_day_goes_first_and_nothing_of_others(tmp_path: Path) -> None:
    names = ("2026-01-04/23-0000-00000a", "2026-01-05/08-0000-00000b", "2026-01-05/09-0000-00000c")
    for name in (*names, "2026-01-05/mine", "notes/08-0000-00000d"):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
    assert make_room(tmp_path, 300) == 0
    assert make_room(tmp_path, 200) == 1
    assert not (tmp_path / "2026-01-04").exists()
    assert make_room(tmp_path, 150) == 1
    left = [f"{path.relative_to(tmp_path)}" for path in written(tmp_path)]
    assert left == [
        "2026-01-05/09-0000-00000c.parquet",
        "2026-01-05/mine.parquet",
        "notes/08-0000-00000d.parquet",
    ]
