"""Texts that a model cannot read are counted or refused, and numbers are numbers, by every way."""

from __future__ import annotations

import base64
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import requests
import tritonclient.http as triton

from components.beam_workers.options import IN_PROCESS_ARGS
from components.pusher.versions import list_versions, push_new_version
from components.serving.server.options import ServeOptions
from components.serving.settings import OnUnreadable
from pipeline.cli.predict import ChosenModel, PredictOptions, write_predictions
from tests.support.servers import running
from tests.support.trainer_data import made_once, run_transform, to_example, write_examples
from trainer_module.errors import DataError
from trainer_module.settings import TrainerSettings
from trainer_module.trainer import run_fn

pytestmark = pytest.mark.slow

Row = dict[str, Any]
SETTINGS = {
    "label": "price",
    "task": "regression",
    "features": {
        "mileage": {"type": "numeric", "written": "point", "unit": "mi."},
        "tax": {"type": "numeric", "written": "comma", "unit": "€"},
        "seen": {"type": "numeric", "written": "clock"},
        "sold": {"type": "date", "format": "%d/%m/%Y"},
        "garage": {"type": "boolean"},
        "maker": {"type": "categorical"},
    },
    "model": {"kind": "mlp", "hidden_units": [4]},
    "train": {"epochs": 1, "batch_size": 32, "learning_rate": 0.01},
}
SMALL_BATCHES = PredictOptions(batch_rows=32)
GOOD: Row = {
    "mileage": "51,000 mi.",
    "tax": "1.234,5 €",
    "seen": "18:30:00",
    "sold": "31/12/2019",
    "garage": "yes",
    "maker": "cheap",
}
ODD: Row = {
    "mileage": "13,680 km",
    "tax": "1,234.5",
    "seen": "25:61",
    "sold": "31/02/2019",
    "garage": "perhaps",
    "maker": "dear",
}
COLUMNS = ["mileage", "tax", "seen", "sold", "garage"]
EMPTY = {**ODD, **dict.fromkeys(COLUMNS)}


def push(root: Path) -> None:
    random = np.random.default_rng(3)
    rows = []
    for number in range(120):
        miles = int(random.integers(5_000, 90_000))
        row = {
            **GOOD,
            "mileage": f"{miles:,} mi.",
            "tax": f"{number},5 €",
            "seen": f"{number % 24}:15",
            "sold": f"{number % 28 + 1}/03/20{number % 20:02}",
            "garage": ["yes", "no"][number % 2],
            "price": 100.0 - miles / 1000,
        }
        rows.append(row | ({} if number % 9 else dict.fromkeys(COLUMNS)))
    data = run_transform(root, rows[:100], rows[100:], TrainerSettings.model_validate(SETTINGS))
    fn_args = data.fn_args(root)
    run_fn(fn_args)
    push_new_version(Path(fn_args.serving_model_dir), root / "cars")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "pushed_cars", push) / "cars"


@pytest.fixture(scope="module")
def server(serving: Path) -> Iterator[str]:
    with running(ServeOptions("cars", serving)) as address:
        yield address


@pytest.fixture(scope="module")
def strict(serving: Path) -> Iterator[str]:
    options = ServeOptions("cars", serving, on_unreadable=OnUnreadable.REFUSE)
    with running(options) as address:
        yield address


def post(server: str, *rows: Row, **more: Any) -> requests.Response:
    body = {"instances": list(rows), **more}
    return requests.post(f"{server}/v1/models/cars:predict", json=body, timeout=60)


def ask(server: str, *rows: Row, **more: Any) -> list[float]:
    answer = post(server, *rows, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def counted(server: str) -> dict[str, float]:
    """How many texts of each column could not be read."""
    text = requests.get(f"{server}/metrics", timeout=60).text
    lines = [line for line in text.splitlines() if "unreadable_values_total{" in line]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


def encoded(row: Row) -> Row:
    return {"b64": base64.b64encode(to_example(row)).decode()}


def test_unreadable_texts_are_counted_in_every_form_of_request(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        good, odd, empty = ask(server, GOOD, ODD, EMPTY)
    assert odd == empty != good
    assert counted(server) == dict.fromkeys(COLUMNS, 1)
    assert {line.split("'")[1] for line in caplog.messages} == set(COLUMNS)
    assert "expected a number, or text in the format 1,234.5 mi." in caplog.text
    assert "km" not in caplog.text
    caplog.clear()
    ask(server, encoded(ODD), encoded(GOOD), encoded({**ODD, "mileage": "none"}))
    assert counted(server) == {**dict.fromkeys(COLUMNS, 3), "mileage": 2}
    inputs = []
    for name in GOOD:
        inputs.append(triton.InferInput(name, [2], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([GOOD[name], ODD[name]], object))
    with triton.InferenceServerClient(server.removeprefix("http://")) as client:
        found = client.infer("cars", inputs).as_numpy("value")
    np.testing.assert_allclose(found, [good, odd], rtol=1e-5)
    assert counted(server)["garage"] == 4
    assert not caplog.messages, "the log says it once a minute"
    missing = {**EMPTY, "mileage": "N/A", "tax": " - ", "seen": "?", "garage": "NULL", "sold": ""}
    assert ask(server, missing) == [empty]
    assert counted(server)["mileage"] == 3


def test_numbers_equal_their_texts(server: str) -> None:
    before = counted(server)
    by_text = {**GOOD, "mileage": "8500", "tax": "1.234,25", "sold": "01/03/2019"}
    by_number = {**by_text, "mileage": 8500, "tax": 1234.25, "seen": 18.5, "garage": True}
    (right,) = ask(server, by_text)
    assert ask(server, by_number, {**by_number, "garage": 1}) == pytest.approx([right] * 2)
    columns = {name: [value] for name, value in by_number.items()}
    url = f"{server}/v1/models/cars:predict"
    answer = requests.post(url, json={"inputs": columns}, timeout=60)
    assert answer.json()["outputs"] == pytest.approx([right])
    assert counted(server) == before


def test_strict_server_refuses_unreadable_texts(strict: str) -> None:
    assert len(ask(strict, GOOD, EMPTY, {**GOOD, "tax": "n/a"})) == 3
    answer = post(strict, GOOD, {**GOOD, "mileage": "13,680 km"})
    assert answer.status_code == 400
    assert "'mileage' of row 1 is '13,680 km'" in answer.json()["error"]
    answer = post(strict, encoded(GOOD), encoded({**GOOD, "garage": "perhaps"}))
    assert (answer.status_code, "'garage' of row 1 is 'perhaps'" in answer.text) == (400, True)


def write_files(folder: Path, rows: list[Row]) -> dict[str, Path]:
    paths = {ending: folder / f"rows.{ending}" for ending in ("jsonl", "csv", "parquet")}
    paths["jsonl"].write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    table = pa.Table.from_pylist(rows)
    pa_csv.write_csv(table, paths["csv"])
    pq.write_table(table, paths["parquet"])
    return paths


def test_predict_counts_or_refuses_unreadable_texts(
    serving: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (version,) = list_versions(serving)
    rows = [*[GOOD] * 40, ODD, {**ODD, "tax": GOOD["tax"]}, EMPTY]
    paths = write_files(tmp_path, rows)
    paths = {"csv": paths["csv"], "parquet": paths["parquet"]}
    paths["tfrecord.gz"] = tmp_path / "rows.tfrecord.gz"
    write_examples(paths["tfrecord.gz"], [to_example(row) for row in rows])
    chosen = ChosenModel(version)
    for path in (paths["csv"], paths["tfrecord.gz"]):
        write_predictions(chosen, str(path), tmp_path / f"{path.name}.csv", SMALL_BATCHES)
        printed = capfd.readouterr().out
        assert "mileage: 2 invalid values count as missing" in printed, path
        assert "tax: 1 invalid values count as missing" in printed
    folder = tmp_path / "several"
    folder.mkdir()
    for number in range(2):
        shutil.copy(paths["parquet"], folder / f"{number}.parquet")
    given = str(folder / "*.parquet")
    write_predictions(chosen, given, tmp_path / "beam", SMALL_BATCHES, IN_PROCESS_ARGS)
    assert "mileage: 4 invalid values count as missing" in capfd.readouterr().out
    strict = ChosenModel(version, on_unreadable=OnUnreadable.REFUSE)
    with pytest.raises(
        DataError, match=r"'garage' is 'perhaps' in row 42 of .*rows\.csv, expected"
    ):
        write_predictions(strict, str(paths["csv"]), tmp_path / "strict.csv", SMALL_BATCHES)
