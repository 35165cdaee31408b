"""Requests that come back as data: what is written of them, when, and what is left of it."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import re
import resource
import signal
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
import tritonclient.http as triton
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

import local_runner
from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.serving.model import Model
from components.serving.request_log.files import (
    UnfinishedFile,
    delete_oldest,
    finish_abandoned,
    now_utc,
)
from components.serving.request_log.log import RequestLog, is_sampled
from components.serving.request_log.rows import AnsweredBatch, LoggedRequest, to_rows
from components.serving.requests import EXAMPLES, RAW
from components.serving.server.options import ServeOptions, check_dropped, check_log
from components.serving.server.replies import ID_HEADER
from components.serving.settings import LogOptions
from tests.support.served_trips import Pushed, expected
from tests.support.servers import running, wait_until
from tests.support.small_disk import can_mount, run_on_small_disk
from tests.support.trainer_data import to_example
from trainer_module.errors import ConfigError

Rows = list[dict[str, Any]]


def written(folder: Path) -> list[Path]:
    """The whole files of a log, in the order of their times."""
    return sorted(folder.glob("*/*.parquet"))


@pytest.fixture(scope="module")
def options(pushed: Pushed) -> ServeOptions:
    return ServeOptions("trips", pushed.serving)


@pytest.fixture(scope="module")
def asked(rows: Rows) -> Rows:
    """The first rows by the names of requests."""
    names = {"price (EUR)": "price__EUR_"}
    return [{names.get(k, k): v for k, v in r.items() if k != "trip id"} for r in rows[:6]]


@pytest.fixture(scope="module")
def log(
    options: ServeOptions,
    asked: Rows,
    rows: Rows,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """What is written of requests in every way that there is."""
    folder = tmp_path_factory.mktemp("log")
    with running(replace(options, log=LogOptions(folder))) as server:
        url = f"{server}/v1/models/trips:predict"
        given = post(url, {"instances": asked[:1]}, "my-id")
        assert given.headers[ID_HEADER] == "my-id"
        columns = {name: [row[name] for row in asked[1:3]] for name in asked[0]}
        made = post(url, {"inputs": columns}, "not one word")
        assert re.fullmatch("[0-9a-f]{32}", made.headers[ID_HEADER])
        examples = {"instances": [{"b64": _base64(to_example(row))} for row in rows[3:5]]}
        assert post(url, examples, "ex").status_code == 200
        with triton.InferenceServerClient(server.removeprefix("http://")) as client:
            _infer(client, asked[5])
        assert post(url, {"instances": []}).status_code == 400
        assert not written(folder)  # Only whole files appear.
    return folder


def post(url: str, body: dict[str, Any], name: str = "") -> requests.Response:
    return requests.post(url, json=body, headers={ID_HEADER: name} if name else None, timeout=60)


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _infer(client: triton.InferenceServerClient, row: dict[str, Any]) -> None:
    inputs = []
    for given in client.get_model_metadata("trips")["inputs"]:
        name, datatype = given["name"], given["datatype"]
        if datatype == "BYTES":
            found = row[name] if isinstance(row[name], list) else [row[name] or ""]
            values = np.array(found or [""], object)
        else:
            dtype = {"FP32": np.float32, "FP64": np.float64}[datatype]
            values = np.array([np.nan if row[name] is None else row[name]], dtype)
        values = values.reshape([1, -1] if len(given["shape"]) == 2 else [1])
        inputs.append(triton.InferInput(name, list(values.shape), datatype))
        inputs[-1].set_data_from_numpy(values)
    client.infer("trips", inputs, headers={ID_HEADER: "v2"})


def test_the_log_has_the_rows_as_training_data_has_them(log: Path, rows: Rows) -> None:
    (file,) = written(log)
    hour = datetime.now(UTC)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d/\d\d-\d{4}-[0-9a-f]{6}\.parquet", f"{file.relative_to(log)}"
    )
    assert abs(datetime.fromisoformat(f"{file.parent.name}T{file.name[:2]}:00Z") - hour).days == 0
    table = pq.read_table(file)
    ids = table["request_id"].to_pylist()
    assert [ids[0], *ids[3:]] == ["my-id", "ex/0", "ex/1", "v2"]
    assert [name[-2:] for name in ids[1:3]] == ["/0", "/1"]
    for name in ("fare", "price (EUR)", "area", "company", "tags"):
        right = [row[name] for row in rows[:6]]
        found = table[name].to_pylist()
        if name in ("fare", "price (EUR)"):
            np.testing.assert_allclose(found, right, rtol=1e-6)
        else:
            assert found == right
    assert table["area"].type == pa.int64()


def test_the_log_has_the_answers(log: Path, model: Model, rows: Rows) -> None:
    table = pq.read_table(written(log)[0])
    assert set(table["model_version"].to_pylist()) == {model.folder.name}
    scores = table["answer_score_1"].to_numpy()
    np.testing.assert_allclose(scores, expected(model, rows[:6]), atol=1e-6)
    chosen = np.array(table["answer_class"].to_pylist()) == "1"
    np.testing.assert_array_equal(chosen, scores > 0.5)
    now = time.time()
    times = table["request_time"].to_pylist()
    assert all(0 <= now - moment.timestamp() < 600 for moment in times)


def test_a_later_config_reads_data_alone(log: Path) -> None:
    (file,) = written(log)
    source = make_source(ExampleGenSettings(format="parquet", label="tipped", task="binary"))
    kinds = source.peek((str(file),))
    assert kinds == {
        "fare": ColumnKind.FLOAT,
        "price (EUR)": ColumnKind.FLOAT,
        "area": ColumnKind.INT,
        "company": ColumnKind.BYTES,
        "tags": ColumnKind.BYTES,
    }
    (batch,) = source.read((str(file),), kinds)
    assert batch.rows.schema.names == list(kinds)
    assert batch.first == Cell(str(file), 1)


def test_what_is_dropped_is_not_written(options: ServeOptions, asked: Rows, tmp_path: Path) -> None:
    log = LogOptions(tmp_path, dropped=frozenset({"company", "price (EUR)"}))
    with running(replace(options, log=log)) as server:
        url = f"{server}/v1/models/trips:predict"
        assert post(url, {"instances": asked}).status_code == 200
    names = pq.read_table(written(tmp_path)[0]).schema.names
    assert {"fare", "area", "tags"} <= set(names)
    assert not {"company", "price (EUR)"} & set(names)


def test_a_file_is_as_it_was_where_rows_do_not_fit(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"a": list(range(1000))})
    file = UnfinishedFile(tmp_path, batch.schema, now_utc())
    file.append(batch)
    # What grows beyond the limit fails as on a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.size + 100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.append(batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    file.append(batch.slice(0, 10))
    file.finish()
    assert pq.read_table(written(tmp_path)[0])["a"].to_pylist() == [*range(1000), *range(10)]


FULL_DISK = """
sys.path[:0] = sys.argv[4:]
import requests
from tests.support.servers import running, wait_until
from components.serving.settings import LogOptions
from components.serving.server.options import ServeOptions
import time
folder, serving, body = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
def count(outcome):
    text = requests.get(f"{server}/metrics").text
    name = f'scopeline_request_log_rows_total{{outcome="{outcome}"}} '
    return float(text.partition(chr(10) + name)[2].split(chr(10))[0])
def ask():
    answer = requests.post(f"{server}/v1/models/trips:predict", data=body)
    assert answer.status_code == 200, answer.text
def ask_until(test):
    limit = time.monotonic() + 20
    while not test():
        assert time.monotonic() < limit, requests.get(f"{server}/metrics").text
        ask()
        time.sleep(0.05)
filler = folder / "filler"
with running(ServeOptions("trips", serving, log=LogOptions(folder))) as server:
    ask_until(lambda: count("written"))
    try:
        filler.write_bytes(bytes(8 << 20))
    except OSError:
        pass
    ask_until(lambda: count("disk_failed"))
    lost, before = count("disk_failed"), count("written")
    filler.unlink()
    ask_until(lambda: count("written") > before)
    everything = count("written")
import pyarrow.parquet as pq
rows = sum(pq.read_metadata(file).num_rows for file in folder.glob("*/*.parquet"))
print("lost", lost > 0, "kept", rows >= everything)
"""


@pytest.mark.skipif(not can_mount(), reason="no mount namespaces here")
def test_a_full_disk_keeps_no_answer(pushed: Pushed, asked: Rows, tmp_path: Path) -> None:
    body = json.dumps({"instances": [dict(row) for row in asked for _ in range(20)]})
    paths = [path for path in sys.path if path]
    result = run_on_small_disk(
        FULL_DISK, tmp_path / "log", 2000, str(tmp_path / "log"), str(pushed.serving), body, *paths
    )
    assert result.stdout.split() == ["lost", "True", "kept", "True"], result.stderr


@pytest.mark.parametrize("sample", [0.0, 1.5])
def test_a_share_that_is_none_is_refused(tmp_path: Path, sample: float) -> None:
    with pytest.raises(ConfigError, match=f"--sample {sample:g}: expected a share"):
        check_log(LogOptions(tmp_path, sample))


def test_a_sample_of_nothing_is_refused(pushed: Pushed) -> None:
    command = ["serve", "--model", str(pushed.version), "--sample", "0.1"]
    result = CliRunner().invoke(local_runner.app, command)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "--sample 0.1 needs a request log: add --log-requests DIR."


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--log-requests .*/file/log cannot be written"):
        check_log(LogOptions(tmp_path / "file" / "log"))


def test_a_misspelt_column_is_not_written_by_accident(pushed: Pushed, tmp_path: Path) -> None:
    check_dropped(LogOptions(tmp_path, dropped=frozenset({"company", "trip id"})), pushed.version)
    with pytest.raises(ConfigError, match=r"log.drop: .*'compny'; did you mean 'company'"):
        check_dropped(LogOptions(tmp_path, dropped=frozenset({"compny"})), pushed.version)


def test_a_sample_is_a_share_and_the_same_everywhere() -> None:
    names = [f"request {n}" for n in range(10_000)]
    chosen = [name for name in names if is_sampled(name, 0.1)]
    assert 900 < len(chosen) < 1100
    assert set(chosen) <= {name for name in names if is_sampled(name, 0.2)}
    assert all(is_sampled(name, 1) for name in names)


def test_a_sample_of_requests_that_were_asked_together_keeps_their_rows(model: Model) -> None:
    fares = np.arange(6.0)
    counts = [LoggedRequest("a", 2), LoggedRequest("b", 1), LoggedRequest("c", 3)]
    asked = AnsweredBatch(counts, 0.0, model, RAW, {"fare": fares}, {"value": -fares})
    assert asked.select(lambda name: True) is asked
    some = asked.select(lambda name: name != "b")
    assert (some.requests, some.rows) == ([LoggedRequest("a", 2), LoggedRequest("c", 3)], 5)
    assert some.columns["fare"].tolist() == [0, 1, 3, 4, 5]
    assert some.answers["value"].tolist() == [-0.0, -1, -3, -4, -5]


def test_rows_keep_their_order_whatever_the_widths_of_lists(model: Model, rows: Rows) -> None:
    ends = [0, 1, 2, 5, 105, 109]
    together = [answered(model, rows[start:end]) for start, end in itertools.pairwise(ends)]
    assert len({one.columns["tags"].shape[1] for one in together}) > 1
    found = to_rows(together, {"company"})
    for name in ("area", "tags"):
        assert found[name].to_pylist() == [row[name] for row in rows[:109]]
    assert found["request_id"].to_pylist()[:3] == ["a", "a", "a/0"]
    scores = np.concatenate([one.answers["scores"][:, 1] for one in together])
    np.testing.assert_array_equal(found["answer_score_1"].to_numpy(), scores)


def answered(model: Model, rows: Rows, name: str = "a") -> AnsweredBatch:
    """Rows that were asked together, as one request."""
    columns = {
        column.request: _array([row[column.name] for row in rows], column.width, column.dtype)
        for column in model.interface.columns
    }
    requests = [LoggedRequest(name, len(rows))]
    return AnsweredBatch(requests, time.time(), model, RAW, columns, model.predict(columns))


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
                one = AnsweredBatch(
                    [LoggedRequest(name, 1)], 1.5, model, signature, columns, {"value": numbers}
                )
                counted += one.size
                log.note(one)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * counted


def test_a_part_of_a_large_request_keeps_nothing_of_the_rest(model: Model, tmp_path: Path) -> None:
    log = RequestLog(LogOptions(tmp_path), CollectorRegistry())  # Nothing is written.
    parts = slice(0, 1000), slice(1000, 1001)
    tracemalloc.start()
    try:
        for place in range(20):
            whole = np.zeros((1001, 100))
            one = LoggedRequest(f"{place}", 1, 1000)
            last = {"fare": whole[parts[1]]}
            log.note(AnsweredBatch([one], 1.5, model, RAW, last, {"value": whole[parts[1], 0]}))
            del whole, last
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log._queue) == 20
    assert taken < 200_000


class Noted:
    """A log that is written to without a server."""

    def __init__(self, model: Model, rows: Rows, options: LogOptions) -> None:
        self.registry = CollectorRegistry()
        self.hour = datetime(2026, 1, 5, 10, 30, tzinfo=UTC)
        self.log = RequestLog(options, self.registry, lambda: self.hour)
        self._answered = answered(model, rows)
        self.log.start()

    def note(self, name: str) -> None:
        requests = [LoggedRequest(name, self._answered.rows)]
        self.log.note(replace(self._answered, requests=requests, time=time.time()))

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


@pytest.fixture
def noted(model: Model, rows: Rows, tmp_path: Path) -> Iterator[Noted]:
    found = Noted(model, rows[:3], LogOptions(tmp_path))
    yield found
    found.log.close()


def test_an_hour_has_a_file_of_its_own(noted: Noted, tmp_path: Path) -> None:
    noted.note("a")
    wait_until(lambda: noted.count("written") == 3)
    assert not written(tmp_path)
    noted.hour = noted.hour.replace(day=6, hour=0)
    wait_until(lambda: len(written(tmp_path)) == 1)
    noted.note("b")
    noted.log.close()
    first, second = written(tmp_path)
    assert [file.parent.name for file in (first, second)] == ["2026-01-05", "2026-01-06"]
    assert pq.read_table(second)["request_id"].to_pylist() == ["b/0", "b/1", "b/2"]
    assert not list((tmp_path / ".unfinished").iterdir())


def test_what_a_killed_process_has_written_is_not_lost(noted: Noted, tmp_path: Path) -> None:
    for name in ("a", "b"):
        noted.note(name)
        wait_until(lambda of=name: noted.count("written") == (3 if of == "a" else 6))
    (stream,) = (tmp_path / ".unfinished").iterdir()
    assert finish_abandoned(stream, tmp_path) is None  # It is held by a process that is at work.
    assert stream.exists()
    left = tmp_path / "other" / ".unfinished" / stream.name
    left.parent.mkdir(parents=True)
    left.write_bytes(stream.read_bytes()[:-40])
    loss = finish_abandoned(left, tmp_path / "other")
    assert loss is not None
    assert (loss.kept, loss.lost) == (3, 3)
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
        log = RequestLog(LogOptions(folder, max_bytes=LIMIT), registry)
        log.start()
        log.close()
        assert size_of(folder) <= LIMIT, number
        kept = [row for path in folder.glob("2026-01-05/*.parquet") for row in read_rows(path)]
        assert kept == readable, number
        assert not list((folder / ".unfinished").glob("*.rows"))
        lost = registry.get_sample_value("scopeline_request_log_rows_total", {"outcome": "damaged"})
        assert caplog.text.count(
            f"{len(kept)} of its rows are kept, and at least {lost:.0f} are"
        ) == (content != left.content)
        caplog.clear()


def test_a_damaged_stream_is_kept_until_there_is_no_room(tmp_path: Path) -> None:
    left = Left(tmp_path / "log", tmp_path / "whole")
    middle = (left.ends[3] + left.ends[4]) // 2
    content = left.content[:middle] + b"?" + left.content[middle + 1 :]
    left.stream.write_bytes(content)
    loss = finish_abandoned(left.stream, tmp_path / "log")
    aside = left.stream.with_suffix(".damaged")
    assert loss == (aside.name, 9 * ROWS, ROWS, True)
    assert aside.read_bytes() == content
    assert not left.stream.exists()
    for path in left.others:
        path.unlink()
    (whole,) = written(tmp_path / "log")
    older = tmp_path / "log" / "2026-01-01" / "05-0000-00000a.parquet"
    older.parent.mkdir()
    older.write_bytes(bytes(100))
    assert delete_oldest(tmp_path / "log", whole.stat().st_size + 100).deleted == 1
    assert (older.exists(), aside.exists()) == (True, False)


def test_a_batch_that_is_gone_is_noticed(tmp_path: Path) -> None:
    left = Left(tmp_path / "log", tmp_path / "whole")
    left.stream.write_bytes(left.content[: left.ends[3]] + left.content[left.ends[4] :])
    loss = finish_abandoned(left.stream, tmp_path / "log")
    assert loss is not None
    assert loss[1:] == (9 * ROWS, ROWS, True)


def read_rows(path: Path) -> list[int]:
    table = pq.read_table(path)
    assert table["text"].to_pylist() == [f"row {n}" for n in table["row"].to_pylist()]
    found: list[int] = table["row"].to_pylist()
    return found


def test_two_servers_under_load_keep_the_limit_of_their_folder(
    model: Model, rows: Rows, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = [Noted(model, rows * 20, LogOptions(tmp_path, max_bytes=LIMIT)) for _ in range(2)]
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
    log = RequestLog(LogOptions(folder, max_bytes=LIMIT), CollectorRegistry())
    log.start()
    log.close()


def test_no_failure_ends_the_thread_or_an_answer(
    noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("of a kind that nobody knows")

    with monkeypatch.context() as broken:
        broken.setattr(AnsweredBatch, "select", fail)
        noted.note("a")
    with monkeypatch.context() as broken:
        broken.setattr("components.serving.request_log.log.delete_oldest", fail)
        broken.setattr("components.serving.request_log.log.to_rows", fail)
        noted.note("b")
        wait_until(lambda: noted.count("disk_failed"))
    noted.note("c")
    wait_until(lambda: noted.count("written") == 3)


def test_the_oldest_day_goes_first_and_nothing_of_others(tmp_path: Path) -> None:
    names = ("2026-01-04/23-0000-00000a", "2026-01-05/08-0000-00000b", "2026-01-05/09-0000-00000c")
    for name in (*names, "2026-01-05/mine", "notes/08-0000-00000d"):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
    assert delete_oldest(tmp_path, 300).deleted == 0
    assert delete_oldest(tmp_path, 200).deleted == 1
    assert not (tmp_path / "2026-01-04").exists()
    assert delete_oldest(tmp_path, 150).deleted == 1
    left = [f"{path.relative_to(tmp_path)}" for path in written(tmp_path)]
    assert left == [
        "2026-01-05/09-0000-00000c.parquet",
        "2026-01-05/mine.parquet",
        "notes/08-0000-00000d.parquet",
    ]
