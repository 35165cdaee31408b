"""`predict --explain`: the shares of columns add up to the predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from components.serving.batch.explaining import Explainer
from components.serving.batch.job import PredictionJob, predict
from components.serving.batch.reading import Input, find_files
from components.serving.model import Model
from pipeline.cli.predict import ChosenModel, PredictOptions, write_predictions
from tests.support.served_trips import Pushed, expected
from tests.support.trainer_data import to_example, write_examples
from trainer_module.errors import ConfigError

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def few(rows: Rows) -> Rows:
    return [{**row, "unused": "x"} for row in rows[:30]]


@pytest.fixture(scope="module")
def inputs(few: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explained") / "in.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in few))
    return path


def explain(model: Model, path: Path, output: Path, shown: int = 3, **options: Any) -> None:
    found, data_format = find_files(str(path))
    source = Input(found, data_format, copied=("trip id",))
    explainer = Explainer.of(model, source, shown)
    predict(PredictionJob(model, source, output, explainer=explainer, **options), lambda rows: None)


def sums(rows: Rows) -> list[float]:
    return [
        row["base"] + row["others"] + sum(column["share"] for column in row["explanation"])
        for row in rows
    ]


def test_shares_others_and_base_add_up_to_the_probability_in_every_format(
    pushed: Pushed, model: Model, few: Rows, inputs: Path, tmp_path: Path
) -> None:
    chosen = ChosenModel(pushed.version)
    options = PredictOptions(("trip id",), shown=3)
    write_predictions(chosen, str(inputs), tmp_path / "out.csv", options)
    for ending in ("jsonl", "parquet"):
        explain(model, inputs, tmp_path / f"out.{ending}")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    predicted = expected(model, few)
    np.testing.assert_allclose(sums(lines), predicted, atol=1e-6)
    names = [[column["column"] for column in line["explanation"]] for line in lines]
    assert {len(set(row)) for row in names} == {3}
    assert {name for row in names for name in row} <= {
        *("fare", "price (EUR)", "area", "company", "tags"),
    }
    for line in lines:
        strengths = [abs(column["share"]) for column in line["explanation"]]
        assert strengths == sorted(strengths, reverse=True)
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [
        {**line, "score_0": np.float32(line["score_0"]), "score_1": np.float32(line["score_1"])}
        for line in lines
    ]
    table = pa_csv.read_csv(tmp_path / "out.csv")
    texts = table["explanation"].to_pylist()
    assert list(map(json.loads, texts)) == [line["explanation"] for line in lines]


def test_records_are_explained_as_rows_are(
    model: Model, few: Rows, inputs: Path, tmp_path: Path
) -> None:
    write_examples(tmp_path / "in.tfrecord.gz", map(to_example, few))
    explain(model, tmp_path / "in.tfrecord.gz", tmp_path / "records.parquet", 5)
    explain(model, inputs, tmp_path / "rows.parquet", 5)
    tables = [
        pq.read_table(tmp_path / f"{name}.parquet").to_pylist() for name in ("records", "rows")
    ]
    for record, row in zip(*tables, strict=True):
        assert record["base"] == pytest.approx(row["base"], abs=1e-6)
        shares = [{c["column"]: c["share"] for c in one["explanation"]} for one in (record, row)]
        assert shares[0] == pytest.approx(shares[1], abs=1e-6)


def test_explanations_are_not_mixed_with_answers_that_have_others(
    model: Model, inputs: Path, tmp_path: Path
) -> None:
    source = Input((str(inputs),), "jsonl")
    plain = PredictionJob(model, source, tmp_path / "out.csv")
    three, five = (replace(plain, explainer=Explainer.of(model, source, n)) for n in (3, 5))
    identities = [json.dumps(job.identity()) for job in (plain, three, five)]
    assert len(set(identities)) == 3
    source = Input((str(inputs),), "jsonl", copied=("base",))
    renamed = [{**json.loads(line), "base": 1} for line in inputs.read_text().splitlines()]
    other = tmp_path / "in.jsonl"
    other.write_text("".join(f"{json.dumps(row)}\n" for row in renamed))
    with pytest.raises(ConfigError, match="--columns base: the predictions have a column"):
        predict(replace(three, inputs=replace(source, files=(str(other),))), lambda rows: None)
