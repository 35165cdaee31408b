"""Requests that come back as data: what is written of them, when, and what is left of it."""

from __future__ import annotations

import base64
import itertools
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
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
from components.serving.requests import RAW
from components.serving.server.options import ServeOptions, check_log
from components.serving.server.replies import ID_HEADER
from components.serving.settings import LogOptions
from tests.support.served_trips import expected
from tests.support.servers import running, wait_until
from tests.support.trainer_data import to_example
from trainer_module.errors import ConfigError

Rows = list[dict[str, Any]]


def written(folder: Path) -> list[Path]:
    """The whole files of a log, in the order of their times."""
    return sorted(folder.glob("*/*.parquet"))


@pytest.fixture(scope="session")
def few(rows: Rows) -> Rows:
    """The first rows by the names of requests."""
    names = {"price (EUR)": "price__EUR_"}
    return [{names.get(k, k): v for k, v in r.items() if k != "trip id"} for r in rows[:6]]


@pytest.fixture(scope="session")
def log(
    options: ServeOptions,
    few: Rows,
    rows: Rows,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """What is written of requests in every way that there is."""
    folder = tmp_path_factory.mktemp("log")
    with running(replace(options, log=LogOptions(folder))) as server:
        url = f"{server}/v1/models/trips:predict"
        given = post(url, {"instances": few[:1]}, "my-id")
        assert given.headers[ID_HEADER] == "my-id"
        columns = {name: [row[name] for row in few[1:3]] for name in few[0]}
        made = post(url, {"inputs": columns}, "not one word")
        assert re.fullmatch("[0-9a-f]{32}", made.headers[ID_HEADER])
        examples = {"instances": [{"b64": _base64(to_example(row))} for row in rows[3:5]]}
        assert post(url, examples, "ex").status_code == 200
        with triton.InferenceServerClient(server.removeprefix("http://")) as client:
            _infer(client, few[5])
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


def test_logged_rows_equal_the_rows_of_the_data(log: Path, rows: Rows) -> None:
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


def test_logged_answers_equal_the_models(log: Path, model: Model, rows: Rows) -> None:
    table = pq.read_table(written(log)[0])
    assert set(table["model_version"].to_pylist()) == {model.folder.name}
    scores = table["answer_score_1"].to_numpy()
    np.testing.assert_allclose(scores, expected(model, rows[:6]), atol=1e-6)
    chosen = np.array(table["answer_class"].to_pylist()) == "1"
    np.testing.assert_array_equal(chosen, scores > 0.5)
    now = time.time()
    times = table["request_time"].to_pylist()
    assert all(0 <= now - moment.timestamp() < 600 for moment in times)


def test_log_is_read_as_data_by_a_pipeline(log: Path) -> None:
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


def test_dropped_columns_are_not_written(options: ServeOptions, few: Rows, tmp_path: Path) -> None:
    log = LogOptions(tmp_path, dropped=frozenset({"company", "price (EUR)"}))
    with running(replace(options, log=log)) as server:
        url = f"{server}/v1/models/trips:predict"
        assert post(url, {"instances": few}).status_code == 200
    names = pq.read_table(written(tmp_path)[0]).schema.names
    assert {"fare", "area", "tags"} <= set(names)
    assert not {"company", "price (EUR)"} & set(names)


def test_file_stays_readable_when_the_disk_is_full(tmp_path: Path) -> None:
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


def test_wrong_options_of_the_log_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for wrong, key in (
        (LogOptions(tmp_path, 0.0), "--sample 0"),
        (LogOptions(tmp_path / "file" / "log"), "--log-requests .*/file/log"),
    ):
        with pytest.raises(ConfigError, match=key):
            check_log(wrong)


def test_sample_is_a_share_by_the_requests_name() -> None:
    names = [f"request {n}" for n in range(10_000)]
    chosen = [name for name in names if is_sampled(name, 0.1)]
    assert 900 < len(chosen) < 1100
    assert set(chosen) <= {name for name in names if is_sampled(name, 0.2)}
    assert all(is_sampled(name, 1) for name in names)


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
    """Rows of one request."""
    columns = {
        column.request: _array([row[column.name] for row in rows], column.width, column.dtype)
        for column in model.interface.columns
    }
    requests = [LoggedRequest(name, len(rows))]
    return AnsweredBatch(requests, time.time(), model, RAW, columns, model.predict(columns))


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


def test_rows_written_by_a_killed_process_are_kept(noted: Noted, tmp_path: Path) -> None:
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


def rows_of(number: int) -> range:
    return range(number * ROWS, (number + 1) * ROWS)


def batch(number: int) -> pa.RecordBatch:
    numbers = list(rows_of(number))
    tags = [["a", "b"]] * ROWS
    texts = [f"row {n}" for n in numbers]
    return pa.RecordBatch.from_pydict({"row": numbers, "text": texts, "tags": tags})


def test_damaged_file_is_set_aside_until_the_limit(tmp_path: Path) -> None:
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


def test_failures_of_the_log_cost_no_answer(
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


def test_oldest_files_of_the_log_are_deleted_first(tmp_path: Path) -> None:
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
