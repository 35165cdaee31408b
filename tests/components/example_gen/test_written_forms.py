"""Dates, and words for yes and no, are read as the config declares them, or refused by row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.example_gen.checks.values import find_written, merge_written
from components.example_gen.columns.encoded import Cell, single_values
from trainer_module.errors import DataError
from trainer_module.settings import BooleanFeature, DateFeature

DATE = {"when": DateFeature(type="date")}


@pytest.mark.parametrize(
    ("settings", "odd", "words"),
    [
        ({"type": "date"}, "soon", "which is no date: right is %d/%m/%Y, %d-%m-%Y or %Y-%m-%d or"),
        ({"type": "date"}, "2024-02-30", "which is no date: right is"),
        (
            {"type": "date"},
            "28/02/2024",
            r"written in two ways: '2024-01-05' (%Y-%m-%d) in row 2 of {file}, but '28/02/2024'"
            " (%d/%m/%Y) in row 32",
        ),
        (
            {"type": "date", "format": "%d.%m.%Y"},
            "",
            "in row 2 of {file}, which is no date: right is %d.%m.%Y.",
        ),
        (
            {"type": "boolean"},
            "",
            "which is no boolean: right is true or false, yes or no, 1 or 0.",
        ),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_named_with_its_row(tmp_path, refusal, settings, odd, words):
    rows = [f"{i % 2},2024-01-{5 + i % 20:02}" for i in range(30)]
    rows.insert(15, "0,")  # A missing one is none.
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["label,when", *rows[:30], f"1,{odd}", *rows[30:]]) + "\n")
    message = refusal(tmp_path, features={"when": settings})
    assert words.format(file=file) in message


def test_what_can_be_read_stays_as_it_is(tmp_path, generate):
    texts = ["31/12/2024 18:30", " 1/1/2024", ""] * 20
    table = {"label": [0, 1] * 30, "when": texts, "on": [1.0, 0.0, None] * 20}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    features = {"when": {"type": "date"}, "on": {"type": "boolean"}}
    kept = generate(tmp_path, data_format="parquet", features=features)
    assert sum(map(len, kept.values())) == 60


@pytest.mark.parametrize(
    ("values", "place", "problem"),
    [
        (["abc", "12", None], 0, "is 'abc' in row 1 of {file}, which is no number"),
        ([None, "12", "x1"], 2, "is 'x1' in row 3 of {file}, which is no number"),
        (["1.5", "12"], 0, "is '1.5' in row 1 of {file}, which is a number that is kept as text"),
    ],
)
def test_text_that_is_declared_numeric_is_named_with_its_row(
    tmp_path, refusal, values, place, problem
):
    table = {"label": [0, 1] * 30, "size": (values * 60)[:60]}
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table(table), file)
    message = refusal(tmp_path, data_format="parquet", number_columns=("size",))
    assert problem.format(file=file) in message
    assert "features: {size: {type: categorical}}" in message


def test_a_column_that_is_declared_numeric_needs_a_value(tmp_path, refusal):
    (tmp_path / "a.csv").write_text("label,size\n" + "0,\n1,\n" * 20)
    assert "'size' has no value in any row, but" in refusal(tmp_path, number_columns=("size",))


def test_parts_of_the_data_have_to_agree():
    def written(value: str, row: int):
        column = single_values(pa.array([value.encode()], pa.binary()))
        rows = pa.RecordBatch.from_pydict({"when": column})
        return find_written(rows, Cell("a.csv", row, ""), DATE)

    both = merge_written(written("1/2/2024", 2), written("1/13/2024", 3))
    assert both["when"].forms == ("%m/%d/%Y",)
    with pytest.raises(DataError, match=r"'1/2/2024' \(%m/%d/%Y\) in row 2 .*'13/2/2024' \(%d/"):
        merge_written(both, written("13/2/2024", 9))


def test_numbers_are_read_as_text_is():
    rows = pa.RecordBatch.from_pydict(
        {
            "when": single_values(pa.array([20240131, 20240201])),
            "on": single_values(pa.array([1.0, 0.0], pa.float32())),
        }
    )
    features = {**DATE, "on": BooleanFeature(type="boolean")}
    written = find_written(rows, Cell("a.csv", 2), features)
    assert written["when"].forms == ("%Y%m%d",)
    assert "on" in written
