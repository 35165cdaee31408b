"""`predict --row` and `--top-k`: rows of the command line are predicted as rows of files are."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import local_runner
from components.serving.model import Model
from components.serving.top_classes import keep_top_classes
from pipeline.cli.given_rows import parse_rows
from tests.support.served_trips import Pushed, expected
from trainer_module.errors import ConfigError, DataError, ScopelineError
from trainer_module.export.interface import ModelInterface, RawColumn

Rows = list[dict[str, Any]]

INTERFACE = ModelInterface(
    (
        RawColumn("fare", "fare", "float32", False, 1),
        RawColumn("área", "rea", "float64", True, 1),
        RawColumn("price", "price", "string", False, 1, "", (("1,50", r"\d+,\d\d"),), "comma"),
        RawColumn("tags", "tags", "string", False, None),
        RawColumn("photo", "photo", "string", False, 1, "path"),
    ),
    "tipped",
)


def run(pushed: Pushed, *options: str) -> None:
    arguments = ["predict", "--model", str(pushed.serving), *options]
    done = CliRunner(env={"COLUMNS": "100"}).invoke(local_runner.app, arguments)
    assert done.exit_code == 0, done.exception


@pytest.mark.slow
def test_rows_are_printed_with_their_classes_and_shares(
    pushed: Pushed, model: Model, rows: Rows, capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = [next(row for row in rows if (row["fare"] > 30) == is_high) for is_high in (0, 1)]
    texts = [part for row in chosen for part in ("--row", json.dumps({**row, "tipped": 1}))]
    run(pushed, *texts, "--columns", "trip id", "--explain", "--explain-columns", "1")
    lines = [line.split() for line in capfd.readouterr().out.splitlines() if line.strip()]
    right = expected(model, chosen)
    for index, (row, score) in enumerate(zip(chosen, right, strict=True)):
        head, copied, label, first, second, _, share, others, base = lines[9 * index :][:9]
        assert (head, copied) == (["row", str(index + 1)], ["trip", "id", str(row["trip id"])])
        assert label == ["class", str(int(score > 0.5))]
        assert [first[0], second[0]] == (["1", "0"] if score > 0.5 else ["0", "1"])
        assert float(first[1].rstrip("%")) == pytest.approx(100 * max(score, 1 - score), abs=0.51)
        assert first[2] == "█" * round(30 * max(score, 1 - score))
        shares = [float(line[-1]) for line in (share, others, base)]
        assert sum(shares) == pytest.approx(score, abs=2e-3)


@pytest.mark.slow
def test_top_k_of_files_is_the_beginning_of_the_full_answer(
    pushed: Pushed, rows: Rows, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:20]))
    tables = []
    for name, options in (("full.csv", []), ("top.csv", ["--top-k", "1"])):
        output = tmp_path / name
        run(pushed, "--input", str(path), "--answers", str(output), *options)
        tables.append(list(csv.DictReader(output.open())))
    for full, top in zip(*tables, strict=True):
        assert top.keys() == {"class", "classes_1", "scores_1"}
        assert top["class"] == top["classes_1"] == full["class"]
        assert top["scores_1"] == full[f"score_{full['class']}"]


def test_top_classes_with_equal_or_nan_scores() -> None:
    names = np.array([[b"a", b"b", b"c", b"d"]], object)
    scores = np.array([[0.2, np.nan, 0.4, 0.4]], np.float32)
    top = keep_top_classes({"classes": names, "scores": scores, "class": names[:, 2]}, 3)
    assert top["classes"].tolist() == [[b"c", b"d", b"a"]]
    assert top["class"].tolist() == [b"c"]
    with pytest.raises(DataError, match="this model returns quantiles and value: leave `top_k`"):
        keep_top_classes({"value": scores, "quantiles": scores}, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"fares": 1}', "`fares`"),
        ('{"fare": "much"}', '`fare` is "much"'),
        ('{"fare": 1e999}', "`fare` is Infinity"),
        ('{"área": 1.5}', "`área` is 1.5"),
        ('{"tags": ["a", 1]}', "`tags` is 1"),
        ("[1]", "--row [1]"),
        ('{"fare": 1, "fare": 2}', "'fare'"),
        ("[" * 100_000, "--row"),
    ],
)
def test_wrong_row_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScopelineError) as raised:
        parse_rows([text], INTERFACE, {"id"})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_numbers_in_text_columns_become_text() -> None:
    row = '{"id": 7, "fare": 1, "price": 2.5, "tags": null, "photo": "a.png", "tipped": "1"}'
    assert parse_rows([row], INTERFACE, {"id"}) == [{**json.loads(row), "price": "2,5"}]


def test_columns_may_have_their_request_names() -> None:
    assert parse_rows(['{"rea": 3}'], INTERFACE, ()) == [{"área": 3}]
    assert parse_rows(['{"rea": 3}'], INTERFACE, ["rea"]) == [{"rea": 3}]
    assert parse_rows(['{"rea": 3}'], replace(INTERFACE, ignored=("rea",)), ()) == [{"rea": 3}]
    with pytest.raises(DataError, match="`área` is given twice"):
        parse_rows(['{"rea": 3, "área": 3}'], INTERFACE, ())


@pytest.mark.slow
def test_missing_columns_are_errors_as_in_files(pushed: Pushed, rows: Rows) -> None:
    right = {name: value for name, value in rows[1].items() if name != "trip id"}
    without = {name: value for name, value in right.items() if name != "fare"}
    for given, message in ((without, "no column `fare`"), ({**right, "fare": 1e300}, "of --row")):
        arguments = ["predict", "--model", str(pushed.serving), "--row", json.dumps(given)]
        done = CliRunner().invoke(local_runner.app, arguments)
        assert isinstance(done.exception, DataError)
        assert message in str(done.exception)
    done = CliRunner().invoke(local_runner.app, [*arguments, "--runner", "direct"])
    assert isinstance(done.exception, ConfigError)
