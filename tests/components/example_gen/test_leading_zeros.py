"""Numbers of a CSV that are text: codes with zeros before them, days in digits, amounts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.columns.seen import survey_text
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.sources import make_source
from components.example_gen.sources.surveys import merge_surveys
from trainer_module.errors import DataError

ZIPS = ["02139", "2139", "10001", ""] * 10
SAME_WIDTH = ["10001"] * 200 + ["02139"]
DAYS = ["20260131", "", "20250228"]
AMOUNTS = ["850", '"1,200"', "999.50", "NA", "($3)", '"$1,234.50"'] * 3
SLIP = [str(i) for i in range(10, 410)] + ["07"]


def write(folder: Path, values: list[str], name: str = "a.csv") -> Path:
    rows = (f"{i % 2},{value}" for i, value in enumerate(values))
    (folder / name).write_text("\n".join(["label,code", *rows]) + "\n")
    return folder / name


def kind_of(folder: Path, **settings: object) -> ColumnKind:
    told = ExampleGenSettings(format="csv", **{"label": "label", "task": "binary", **settings})
    source = make_source(told)
    surveys = [source.survey((str(file),)) for file in sorted(folder.glob("*.csv"))]
    return merge_surveys(surveys, told)["code"]


def test_codes_stay_as_they_are_written(tmp_path, generate):
    write(tmp_path, ZIPS)
    rows = [row for split in generate(tmp_path, task="binary").values() for row in split]
    values = [row.features.feature["code"].bytes_list.value[:] for row in rows]
    assert {value[0] for value in values if value} == {b"02139", b"2139", b"10001"}


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        (ZIPS, {}, ColumnKind.BYTES),
        (SAME_WIDTH, {}, ColumnKind.BYTES),
        (SLIP, {}, ColumnKind.FLOAT),
        (SLIP, {"mixed_columns": ("code",)}, ColumnKind.BYTES),
        (ZIPS, {"number_columns": ("code",)}, ColumnKind.FLOAT),
        (ZIPS, {"label": "code", "task": "regression"}, ColumnKind.FLOAT),
        (ZIPS, {"label": "code", "task": "multiclass"}, ColumnKind.BYTES),
        (ZIPS, {"order_by": "code"}, ColumnKind.INT),
        ([*ZIPS, "0.5"], {}, ColumnKind.FLOAT),
        (["0", "5", "10"] * 9, {}, ColumnKind.FLOAT),
        (DAYS, {}, ColumnKind.BYTES),
        ([*DAYS, "20260230"], {}, ColumnKind.FLOAT),
        ([*DAYS, "7"], {}, ColumnKind.FLOAT),
        (AMOUNTS, {}, ColumnKind.BYTES),
        (AMOUNTS, {"number_columns": ("code",), "mixed_columns": ("code",)}, ColumnKind.BYTES),
        (DAYS, {"number_columns": ("code",)}, ColumnKind.FLOAT),
        (DAYS, {"mixed_columns": ("code",)}, ColumnKind.INT),
    ],
)
def test_what_is_a_code(tmp_path, values, settings, expected):
    write(tmp_path, values)
    assert kind_of(tmp_path, **settings) is expected


def test_all_files_decide(tmp_path):
    write(tmp_path, ["2139"] * 20)
    assert kind_of(tmp_path) is ColumnKind.FLOAT
    write(tmp_path, ["02139"] * 20, "b.csv")
    assert kind_of(tmp_path) is ColumnKind.BYTES


def test_what_a_schema_has_for_numbers_stays_numbers(tmp_path):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text('feature { name: "code" type: FLOAT }')
    write(tmp_path, ZIPS)
    assert kind_of(tmp_path, schema_file=str(schema)) is ColumnKind.FLOAT


def test_zeros_that_are_lost_are_said(tmp_path, execute):
    file = write(tmp_path, SLIP)
    assert read_notes(execute(tmp_path, task="binary")).sentences == [
        f"column 'code' is read as numbers, but 1 of 401 begin with 0, first '07' in row 402 of"
        f" {file}; if they are codes, write features: {{code: {{type: categorical}}}}"
    ]


def test_a_part_of_an_array_is_looked_at_by_itself():
    values = pa.array([b"0", b"07", None, b"12", b"012"], pa.binary()).slice(2)
    column = survey_text(values, "a.csv", 4, ColumnKind.UNKNOWN)
    assert (column.numbers, column.padded, column.widths) == (2, 1, (2, 3))
    assert (column.first_padded.row, column.first_padded.value) == (6, "012")


def test_amounts_are_refused_as_plain_numbers_with_the_way_to_read_them(tmp_path):
    write(tmp_path, AMOUNTS)
    with pytest.raises(DataError, match=r"'1,200' in row 3 of .* is text") as error:
        kind_of(tmp_path, number_columns=("code",))
    assert "features: {code: {type: numeric, written: point, unit: $}}" in str(error.value)


@pytest.mark.parametrize("slip", ["12x", "soon", '"3,5"'])
def test_a_slip_among_amounts_is_an_error(tmp_path, slip):
    write(tmp_path, [*AMOUNTS, slip, *["7"] * 90])
    with pytest.raises(DataError, match="is not a number"):
        kind_of(tmp_path)
