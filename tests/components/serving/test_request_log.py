"""Requests that come back as data: what is written of them, when, and what is not."""

from __future__ import annotations

import base64
import json
import re
import resource
import signal
import sys
import time
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
from log_folder import written
from running_server import running
from served_trips import Pushed, expected
from small_disk import can_mount, run_on_small_disk
from trainer_data import to_example
from typer.testing import CliRunner

import local_runner
from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.serving.model import Model
from components.serving.request_log.files import (
    UnfinishedFile,
    now_utc,
)
from components.serving.request_log.options import LogOptions, check_dropped, check_log
from components.serving.server.options import ServeOptions
from components.serving.server.replies import ID_HEADER
from trainer_module.errors import ConfigError

Rows = list[dict[str, Any]]


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
    kinds = source.glance((str(file),))
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
from running_server import running
from components.serving.request_log.options import LogOptions
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
    with pytest.raises(ConfigError, match=f"--sample {sample:g}: right is a share"):
        check_log(LogOptions(tmp_path, sample))


def test_a_sample_of_nothing_is_refused(pushed: Pushed) -> None:
    command = ["serve", "--model", str(pushed.version), "--sample", "0.1"]
    result = CliRunner().invoke(local_runner.app, command)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "--sample 0.1 is of what is written: add --log-requests DIR."


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--log-requests .*/file/log cannot be written"):
        check_log(LogOptions(tmp_path / "file" / "log"))


def test_a_misspelt_column_is_not_written_by_accident(pushed: Pushed, tmp_path: Path) -> None:
    check_dropped(LogOptions(tmp_path, dropped=frozenset({"company", "trip id"})), pushed.serving)
    with pytest.raises(ConfigError, match=r"log.drop: .*'compny'; did you mean 'company'"):
        check_dropped(LogOptions(tmp_path, dropped=frozenset({"compny"})), pushed.serving)
