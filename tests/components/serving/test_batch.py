"""Batch prediction: each format answers as tf.Examples are answered; what is done is kept."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

from components.serving.batch import writing
from components.serving.batch.job import PredictionJob, predict
from components.serving.batch.reading import Input, check_not_input, find_files, read_blocks
from components.serving.model import Model
from pipeline.cli.predict import ChosenModel, PredictOptions, write_predictions
from tests.support.served_trips import ROOT, Pushed, expected
from tests.support.servers import wait_for
from tests.support.trainer_data import to_example, write_examples
from trainer_module.errors import ConfigError, DataError, TryLaterError
from trainer_module.export.interface import ModelInterface, RawColumn

Rows = list[dict[str, Any]]


def write_jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def write_parquet(path: Path, rows: Rows) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def job(
    model: Model, files: str | Path, output: Path, *kept: str, batch_rows: int = 64
) -> PredictionJob:
    found, data_format = find_files(str(files))
    return PredictionJob(model, Input(found, data_format, copied=kept), output, batch_rows)


def run(model: Model, files: str | Path, output: Path, *kept: str) -> int:
    return predict(job(model, files, output, *kept), lambda rows: None).rows


def test_jsonl_is_predicted_in_order_with_copied_columns(
    model: Model, rows: Rows, tmp_path: Path
) -> None:
    output = tmp_path / "out.csv"
    assert run(model, write_jsonl(tmp_path / "in.jsonl", rows), output, "trip id", "company") == 200
    table = pa_csv.read_csv(output)
    assert table.column_names == ["trip id", "company", "class", "score_0", "score_1"]
    assert table["trip id"].to_pylist() == [row["trip id"] for row in rows]
    np.testing.assert_allclose(table["score_1"].to_numpy(), expected(model, rows), atol=1e-6)


def test_parquet_and_records_are_answered_alike(model: Model, rows: Rows, tmp_path: Path) -> None:
    write_parquet(tmp_path / "in.parquet", rows)
    write_examples(tmp_path / "in.tfrecord.gz", map(to_example, rows))
    for name, ending in (("in.parquet", "jsonl"), ("in.tfrecord.gz", "parquet")):
        run(model, tmp_path / name, tmp_path / f"out.{ending}", "trip id")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "out.parquet")
    assert lines[0]["trip id"] == table["trip id"][0].as_py() == 300
    found = [line["score_1"] for line in lines]
    np.testing.assert_allclose(found, expected(model, rows), atol=1e-6)
    np.testing.assert_array_equal(np.float32(found), table["score_1"].to_numpy())


@pytest.fixture
def table(model: Model, rows: Rows, tmp_path: Path) -> Path:
    """A CSV; a list is what a CSV does not hold, so that the model has no tags here."""
    path = tmp_path / "in.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "tags": ""} for row in rows)
    return path


def test_csv_is_answered_as_its_rows_are(
    model: Model, rows: Rows, table: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.csv"
    run(model, table, output, "company")
    found = pa_csv.read_csv(output)
    untagged = [{**row, "tags": None} for row in rows]
    np.testing.assert_allclose(found["score_1"].to_numpy(), expected(model, untagged), atol=1e-6)
    assert found["company"].to_pylist() == [row["company"] or "" for row in rows]


def test_text_in_a_number_column_names_the_row_and_keeps_earlier_answers(
    model: Model, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.example_gen.sources.csv_source._BLOCK_SIZE", 2000)
    path, output = tmp_path / "in.csv", tmp_path / "out.csv"
    lines = ["fare,price (EUR),area,company,tags"]
    lines += [f"{row['fare']},{row['price (EUR)']},8,Ace,t1" for row in rows]
    path.write_text("\n".join([*lines[:150], "many,1,8,Ace,t1", *lines[151:]]))
    with pytest.raises(DataError) as caught:
        run(model, path, output)
    assert f"Column 'fare' is 'many' in row 151 of {path}: expected a number" in str(caught.value)
    assert f"rows before are kept in {output}.parts: repeat the command" in str(caught.value)
    assert not output.exists()

    path.write_text("\n".join(lines))
    done = predict(job(model, path, output), lambda rows: None)
    assert done.rows == 200
    assert 50 < done.kept < 150
    whole = tmp_path / "whole.csv"
    run(model, path, whole)
    assert output.read_text() == whole.read_text()
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.slow
def test_second_command_for_one_output_is_refused(
    pushed: Pushed, model: Model, rows: Rows, tmp_path: Path
) -> None:
    """A real one writes it, and is killed: what it leaves is no hindrance."""
    lines = write_jsonl(tmp_path / "some.jsonl", rows).read_text()
    (tmp_path / "in.jsonl").write_text(lines * 5000)
    output, lock = tmp_path / "out.csv", tmp_path / ".out.csv.lock"
    options = ["--model", pushed.serving, "--input", tmp_path / "in.jsonl", "--output", output]
    command = [sys.executable, ROOT / "local_runner.py", "predict", *options]
    first = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: (tmp_path / "out.csv.parts").exists(), first)
        with pytest.raises(TryLaterError, match=r"out\.csv is being written by another command"):
            run(model, tmp_path / "some.jsonl", output)
    finally:
        first.kill()
        first.wait(60)
    assert lock.exists()
    assert run(model, tmp_path / "some.jsonl", output) == 200
    assert len(output.read_text().splitlines()) == 201
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "some.jsonl", "out.csv"}


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("in/a.csv", "in/a.csv"),
        ("in", "in/deeper/out.csv"),
        ("in/**/*.csv", "in/out.csv"),
    ],
)
def test_output_among_the_inputs_is_refused(tmp_path: Path, given: str, output: str) -> None:
    (tmp_path / "in" / "deeper").mkdir(parents=True)
    for name in ("in/a.csv", "in/deeper/b.csv"):
        (tmp_path / name).write_text("fare\n1\n")
    model = ChosenModel(tmp_path)
    with pytest.raises(ConfigError, match=r"matches --input|is also a file of"):
        write_predictions(model, str(tmp_path / given), tmp_path / output, PredictOptions())
    files, data_format = find_files(str(tmp_path / given))
    for other in ("out.csv", "in/out.jsonl" if "*" in given else "out.jsonl"):
        check_not_input(tmp_path / other, str(tmp_path / given), Input(files, data_format))


def test_changed_rows_are_predicted_again(
    model: Model, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PART_ROWS", 50)
    monkeypatch.setattr("components.example_gen.sources.parquet_source._BATCH_ROWS", 50)
    path, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    write_parquet(path, rows)
    stopped = job(model, path, output)

    def stop(done: int) -> None:
        if done >= 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(stopped, stop)
    changed = [*rows[:60], {**rows[60], "fare": 1.0}, *rows[61:]]
    write_parquet(path, changed)
    assert predict(job(model, path, output), lambda rows: None).kept == 50
    found = pq.read_table(output)["score_1"].to_numpy()
    np.testing.assert_allclose(found, expected(model, changed), atol=1e-6)


def test_input_without_rows_is_refused(model: Model, tmp_path: Path) -> None:
    (tmp_path / "in.tfrecord").touch()
    with pytest.raises(DataError, match=r"no rows \(1 file, such as .*/in\.tfrecord\)"):
        run(model, tmp_path / "in.tfrecord", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in.tfrecord"]


def test_missing_column_is_named(model: Model, rows: Rows, tmp_path: Path) -> None:
    renamed = [{("fares" if k == "fare" else k): v for k, v in row.items()} for row in rows]
    for path in (
        write_jsonl(tmp_path / "in.jsonl", renamed),
        write_parquet(tmp_path / "in.parquet", renamed),
    ):
        with pytest.raises(DataError, match="no column `fare`; did you mean `fares`"):
            run(model, path, tmp_path / "out.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in.jsonl", "out.xls"), "'.xls'"),
        (("in.jsonl", "no/out.csv"), "the folder .* does not exist"),
        (("im.jsonl", "out.csv"), r"'in\.jsonl'\?"),
        (("no/*.csv", "out.csv"), r"/no', .*--input"),
    ],
)
def test_wrong_files_are_refused(
    rows: Rows, tmp_path: Path, arguments: tuple[str, str], message: str
) -> None:
    write_jsonl(tmp_path / "in.jsonl", rows)
    (tmp_path / "in.xlsx").write_text("x")
    given, output = (tmp_path / name for name in arguments)
    with pytest.raises((ConfigError, DataError), match=message):
        write_predictions(ChosenModel(tmp_path), str(given), output, PredictOptions())


def test_unknown_or_clashing_copied_column_is_refused(
    model: Model, rows: Rows, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [{**row, "class": "a"} for row in rows])
    with pytest.raises(DataError, match=r"--columns trip_id: .*did you mean `trip id`"):
        run(model, path, tmp_path / "out.csv", "trip_id")
    with pytest.raises(ConfigError, match="the predictions have a column of the same name"):
        run(model, path, tmp_path / "out.csv", "class")


@pytest.mark.slow
def test_command_needs_the_folder_alone_and_neither_tfx_nor_beam(
    pushed: Pushed, rows: Rows, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "in.jsonl", rows)
    command = [sys.executable, "-X", "importtime", str(ROOT / "local_runner.py"), "predict"]
    options = ["--model", pushed.serving, "--input", "in.jsonl", "--output", "out.csv", "--verbose"]
    done = subprocess.run(
        [*command, *map(str, options)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "200 rows" in done.stdout
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 201
    printed = (done.stdout + done.stderr).splitlines()
    imported = {line.rpartition("|")[2].strip() for line in printed if "import time:" in line}
    assert "tensorflow" in imported
    assert not imported & {"tfx", "apache_beam", "tensorflow_transform"}


def of_pictures(origin: str, *others: RawColumn) -> ModelInterface:
    """A model that takes a picture, which its training data held so."""
    picture = RawColumn("photo", "photo", "string", False, 1, origin)
    return ModelInterface((picture, *others), "shade", "string", "multiclass")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, shade in (("b.png", 20), ("a/c.webp", 200), ("a/d.png", 90)):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), shade).save(path)
    return tmp_path / "photos"


def test_pictures_that_a_table_names_are_read(folder: Path) -> None:
    table = folder / "in.csv"
    table.write_text("id,photo\n7,b.png\n8,a/d.png\n")
    (block,) = read_blocks(Input((str(table),), "csv", copied=("id",)), of_pictures("path"))
    assert block.copied["id"].to_pylist() == ["7", "8"]
    assert block.rows.column("photo")[1].as_py() == [(folder / "a/d.png").read_bytes()]
    table.write_text("id,photo\n7,b.png\n8,in.csv\n")
    message = r"path .*in\.csv in row 3 of .* cannot be decoded .*, or remove the row\.$"
    with pytest.raises(DataError, match=message):
        list(read_blocks(Input((str(table),), "csv"), of_pictures("path")))
