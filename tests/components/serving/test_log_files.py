"""The log without a server: rows that are gathered and written, and files that come and go."""

from __future__ import annotations

import itertools
import os
import random
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_folder import written
from prometheus_client import CollectorRegistry

from components.serving.model import Model
from components.serving.request_log.files import UnfinishedFile, finish_left, make_room
from components.serving.request_log.gathering import Answered, GatheredRows, LoggedRequest
from components.serving.request_log.log import RequestLog, is_sampled
from components.serving.request_log.options import LogOptions
from components.serving.requests import EXAMPLES, RAW

Rows = list[dict[str, Any]]


def test_a_sample_is_a_share_and_the_same_everywhere() -> None:
    names = [f"request {n}" for n in range(10_000)]
    chosen = [name for name in names if is_sampled(name, 0.1)]
    assert 900 < len(chosen) < 1100
    assert set(chosen) <= {name for name in names if is_sampled(name, 0.2)}
    assert all(is_sampled(name, 1) for name in names)


def test_a_sample_of_requests_that_were_asked_together_keeps_their_rows(model: Model) -> None:
    fares = np.arange(6.0)
    counts = [LoggedRequest("a", 2), LoggedRequest("b", 1), LoggedRequest("c", 3)]
    asked = Answered(counts, 0.0, model, RAW, {"fare": fares}, {"value": -fares})
    assert asked.only(lambda name: True) is asked
    some = asked.only(lambda name: name != "b")
    assert (some.requests, some.rows) == ([LoggedRequest("a", 2), LoggedRequest("c", 3)], 5)
    assert some.columns["fare"].tolist() == [0, 1, 3, 4, 5]
    assert some.answers["value"].tolist() == [-0.0, -1, -3, -4, -5]


def test_rows_are_gathered_in_their_order_whatever_their_widths(model: Model) -> None:
    def answered(start: int, rows: int, width: int, signature: str = RAW) -> Answered:
        numbers = np.arange(start, start + rows, dtype=np.float32)
        lists = np.repeat(numbers[:, np.newaxis], width, axis=1)
        columns = {"fare": numbers, "tags": lists}
        return Answered(
            [LoggedRequest(f"{start}", rows)], 1.5, model, signature, columns, {"value": -numbers}
        )

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
                one = Answered(
                    [LoggedRequest(name, 1)], 1.5, model, signature, columns, {"value": numbers}
                )
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
            [LoggedRequest(name, rows)], time.time(), self._model, RAW, self._columns, self._answers
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
    assert finish_left(stream, tmp_path) is None  # It is held by a process that is at work.
    assert stream.exists()
    left = tmp_path / "other" / ".unfinished" / stream.name
    left.parent.mkdir(parents=True)
    left.write_bytes(stream.read_bytes()[:-40])
    loss = finish_left(left, tmp_path / "other")
    assert loss is not None
    assert (loss.kept, loss.lost, loss.is_aside) == (3, 3, False)
    (file,) = written(tmp_path / "other")
    assert pq.read_table(file)["request_id"].to_pylist() == ["a/0", "a/1", "a/2"]
    assert not list(left.parent.iterdir())


ROWS = 50
"""Of a batch of `Left`."""


class Left:
    """A folder as killed processes leave it, with a stream whose parts are known."""

    def __init__(self, folder: Path, others: Path) -> None:
        file = UnfinishedFile(others, batch(0).schema, datetime(2026, 1, 5, 10, tzinfo=UTC))
        self.ends = [file.size]
        for number in range(10):
            file.append(batch(number))
            self.ends.append(file.size)
        (stream,) = (others / ".unfinished").iterdir()
        self.stream = folder / ".unfinished" / stream.name
        self.stream.parent.mkdir(parents=True)
        self.content = stream.read_bytes()
        file.finish()
        self.others = [
            self.stream.with_name(f"2026-01-05T09-0000-00000{n}{suffix}")
            for n, suffix in enumerate((".parquet", ".new"))
        ]
        for path in self.others:
            path.write_bytes(bytes(1000))
            os.utime(path, (0, 0))

    def readable(self, content: bytes) -> list[int]:
        """The rows of batches that are whole in a damaged stream."""
        parts = [self.content[start:end] for start, end in itertools.pairwise(self.ends)]
        return [row for n, part in enumerate(parts) if part in content for row in rows_of(n)]


def rows_of(number: int) -> range:
    return range(number * ROWS, (number + 1) * ROWS)


def batch(number: int) -> pa.RecordBatch:
    numbers = list(rows_of(number))
    tags = [["a", "b"]] * ROWS
    texts = [f"row {n}" for n in numbers]
    return pa.RecordBatch.from_pydict({"row": numbers, "text": texts, "tags": tags})


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Bytes as disks and people leave them."""
    start = chance.randrange(len(content))
    some = chance.randint(1, 5000)
    kind = chance.choice(["flip", "truncate", "extend", "zero", "garbage", "hole"])
    if kind == "flip":
        flipped = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        return bytes(flipped)
    zeros = bytes(len(content[start : start + some]))
    return {
        "truncate": content[:start],
        "extend": content + chance.randbytes(some),
        "zero": content[:start] + zeros + content[start + some :],
        "garbage": chance.randbytes(some - 1),
        "hole": content[:start] + content[start + some :],
    }[kind]


LIMIT = 1_500_000


def size_of(folder: Path) -> int:
    """In bytes; of a file that is renamed meanwhile, once."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            found[status.st_ino] = 0 if path.is_dir() else status.st_size
    return sum(found.values())


@pytest.mark.parametrize("seed", range(0, 40, 20))
def test_damaged_leftovers_keep_the_limit_and_what_can_be_read(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What readers of Arrow do with such streams: 110 of 400 raised, and 23 ended the process."""
    for number in range(seed, seed + 20):
        chance = random.Random(number)  # noqa: S311
        folder = tmp_path / f"{number}"
        left = Left(folder, tmp_path / f"{number}-whole")
        content = damaged(left.content, chance)
        readable = left.readable(content)
        left.stream.write_bytes(content)
        for path in left.others:
            path.write_bytes(chance.randbytes(chance.randint(0, 100_000)))
            os.utime(path, (0, 0))
        for day in range(10):
            whole = folder / f"2026-01-0{1 + day // 3}" / f"{day:02}-0000-00000{day}.parquet"
            whole.parent.mkdir(exist_ok=True)
            whole.write_bytes(bytes(500_000))
        registry = CollectorRegistry()
        log = RequestLog(LogOptions(folder, most_bytes=LIMIT), registry)
        log.start()
        log.close()
        assert size_of(folder) <= LIMIT, number
        kept = [row for path in folder.glob("2026-01-05/*.parquet") for row in read_rows(path)]
        assert kept == readable, number
        aside = list((folder / ".unfinished").iterdir())
        assert [path.suffix for path in aside] in ([], [".damaged"])
        lost = registry.get_sample_value("scopeline_request_log_rows_total", {"outcome": "damaged"})
        assert caplog.text.count(
            f"{len(kept)} rows of it are kept, and at least {lost:.0f} are"
        ) == (content != left.content)
        caplog.clear()
        if aside:
            assert make_room(folder, size_of(folder) - 1).deleted == 1
            assert not aside[0].exists()


def read_rows(path: Path) -> list[int]:
    table = pq.read_table(path)
    assert table["text"].to_pylist() == [f"row {n}" for n in table["row"].to_pylist()]
    found: list[int] = table["row"].to_pylist()
    return found


def test_two_servers_under_load_keep_the_limit_of_their_folder(
    model: Model, rows: Rows, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = [Noted(model, rows * 20, LogOptions(tmp_path, most_bytes=LIMIT)) for _ in range(2)]
    seen, ends = [], time.monotonic() + 30
    # What waits never ends. A row takes more than 4 bytes.
    while time.monotonic() < ends and sum(s.count("written") for s in servers) * 4 <= 2 * LIMIT:
        for server in servers:
            server.note("a")
        time.sleep(0.005)
        seen.append(size_of(tmp_path))
    for server in servers:
        server.log.close()
    row = size_of(tmp_path) / sum(pq.read_metadata(file).num_rows for file in written(tmp_path))
    assert max(seen) <= LIMIT
    assert sum(server.count("written") for server in servers) * row > 2 * LIMIT
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_what_cannot_be_finished_waits_and_keeps_no_limit_from_being_kept(
    noted: Noted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = tmp_path / "2026-01-05"
    day.touch()  # As a folder that belongs to somebody else.
    noted.note("a")
    noted.log.close()
    assert caplog.text.count(f"the request log cannot be written: {day}: ") == 2, "each step once"
    old = tmp_path / "2026-01-04" / "23-0000-00000a.parquet"
    old.parent.mkdir()
    old.write_bytes(bytes(LIMIT))
    _look(tmp_path)
    assert not old.exists()
    day.unlink()
    _look(tmp_path)
    (file,) = written(tmp_path)
    assert pq.read_table(file)["request_id"].to_pylist() == ["a/0", "a/1", "a/2"]


def _look(folder: Path) -> None:
    log = RequestLog(LogOptions(folder, most_bytes=LIMIT), CollectorRegistry())
    log.start()
    log.close()


def test_no_failure_ends_the_thread_or_an_answer(
    noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("of a kind that nobody knows")

    with monkeypatch.context() as broken:
        broken.setattr(GatheredRows, "add", fail)
        noted.note("a")
    with monkeypatch.context() as broken:
        broken.setattr("components.serving.request_log.log.make_room", fail)
        broken.setattr("components.serving.request_log.log.to_rows", fail)
        noted.note("b")
        wait_for(lambda: noted.count("disk_failed"))
    noted.note("c")
    wait_for(lambda: noted.count("written") == 3)


def test_the_oldest_day_goes_first_and_nothing_of_others(tmp_path: Path) -> None:
    names = ("2026-01-04/23-0000-00000a", "2026-01-05/08-0000-00000b", "2026-01-05/09-0000-00000c")
    for name in (*names, "2026-01-05/mine", "notes/08-0000-00000d"):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
    assert make_room(tmp_path, 300).deleted == 0
    assert make_room(tmp_path, 200).deleted == 1
    assert not (tmp_path / "2026-01-04").exists()
    assert make_room(tmp_path, 150).deleted == 1
    left = [f"{path.relative_to(tmp_path)}" for path in written(tmp_path)]
    assert left == [
        "2026-01-05/09-0000-00000c.parquet",
        "2026-01-05/mine.parquet",
        "notes/08-0000-00000d.parquet",
    ]
