"""Parquet: values of every type that a feature can hold, and refusals of other types."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, 500000)
UTC = datetime.UTC


def write(path, column: pa.Array) -> None:
    """Writes a file of that column, twice each row, a label and a number of the row."""
    column = pa.concat_arrays([column] * 30)
    rows = np.arange(len(column))
    pq.write_table(
        pa.table({"label": rows % 2, "column": column, "row": rows}), path, row_group_size=40
    )


@pytest.mark.parametrize(
    ("values", "column_type", "expected"),
    [
        ([1, None], pa.int8(), [[1], []]),
        ([True, False], pa.bool_(), [[1], [0]]),
        ([0.5, None], pa.float64(), [[0.5], []]),
        ([decimal.Decimal("1.25"), None], pa.decimal128(5, 2), [[1.25], []]),
        (["a", None], pa.string(), [[b"a"], []]),
        ([b"\xff", None], pa.binary(), [[b"\xff"], []]),
        ([DAY, None], pa.date32(), [[b"2024-02-29"], []]),
        (
            [MOMENT.replace(tzinfo=UTC), None],
            pa.timestamp("ms", "Europe/Berlin"),
            [[b"2024-02-29T12:30:01.500Z"], []],
        ),
        ([[1, None, 2], None, []], pa.list_(pa.int32()), [[1, 2], [], []]),
        ([["a"], ["b", "c"]], pa.large_list(pa.string()), [[b"a"], [b"b", b"c"]]),
    ],
)
def test_values_of_each_type_are_read(tmp_path, read_rows, values, column_type, expected):
    write(tmp_path / "a.parquet", pa.array(values, column_type))
    rows = read_rows(tmp_path, "parquet")
    assert sorted(row["row"][0] for row in rows) == list(range(30 * len(values)))
    for row in rows:
        assert row["column"] == expected[row["row"][0] % len(values)]


def test_dictionaries_are_decoded(tmp_path, read_rows):
    write(tmp_path / "a.parquet", pa.array(["x", None, "y"]).dictionary_encode())
    rows = read_rows(tmp_path, "parquet")
    assert {(row["row"][0] % 3, *row["column"]) for row in rows} == {(0, b"x"), (1,), (2, b"y")}


def test_integers_are_floats_if_another_file_has_floats(tmp_path, read_rows):
    write(tmp_path / "a.parquet", pa.array([1, 2]))
    write(tmp_path / "b.parquet", pa.array([0.5, 1.5]))
    rows = read_rows(tmp_path, "parquet")
    assert sorted({row["column"][0] for row in rows}) == [0.5, 1.0, 1.5, 2.0]
    assert all(isinstance(row["column"][0], float) for row in rows)


@pytest.mark.parametrize(
    ("values", "column_type", "name"),
    [
        ([[{"a": 1}]], pa.list_(pa.struct({"a": pa.int64()})), "list<element: struct<a: int64>>"),
        ([datetime.timedelta(1)], pa.duration("s"), "duration[s]"),
    ],
)
def test_other_types_are_refused(tmp_path, read_error, values, column_type, name):
    write(tmp_path / "a.parquet", pa.array(values, column_type))
    message = read_error(tmp_path, "parquet")
    assert f"'column' of {tmp_path}/a.parquet" in message
    assert name in message


def test_fields_of_structs_are_columns_named_by_path(tmp_path, read_rows):
    places = [{"city": "Bern", "at": {"lat": 46.9}}, {"city": None, "at": None}, None]
    write(tmp_path / "a.parquet", pa.array(places))
    rows = read_rows(tmp_path, "parquet")
    assert {(row["row"][0] % 3, *row["column.city"]) for row in rows} == {(0, b"Bern"), (1,), (2,)}
    assert {len(row["column.at.lat"]) for row in rows if row["row"][0] % 3} == {0}
    assert "column" not in rows[0]


def test_text_in_a_column_of_numbers_is_refused(tmp_path, read_error):
    write(tmp_path / "a.parquet", pa.array([1, 2]))
    write(tmp_path / "b.parquet", pa.array(["x"]))
    message = read_error(tmp_path, "parquet")
    assert f"in row 1 of {tmp_path}/b.parquet" in message
