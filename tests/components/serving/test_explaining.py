"""`predict --explain`: the shares of columns add up to the predictions."""

from __future__ import annotations

import json
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


@pytest.mark.slow
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
