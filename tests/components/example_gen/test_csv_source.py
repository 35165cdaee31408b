"""CSV: the examples of stock CsvExampleGen, errors to act on, and numbers that are text."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import tfx
from tfx.components.example_gen.csv_example_gen.executor import Executor as StockExecutor

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.columns.type_inference import survey_text
from components.example_gen.formats import CsvSettings, ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.sources import make_source
from components.example_gen.sources.surveys import merge_surveys
from trainer_module.errors import DataError

TAXI = Path(tfx.__path__[0], "examples/chicago_taxi_pipeline/data/big_tipper_label/data.csv")
ROWS = [f"{i % 3},{i},{i / 8},name {i}" for i in range(60)]
HEADER = "label,number,share,name"


def write_csv(path: Path, header: str = HEADER, rows: list[str] = ROWS) -> Path:
    """Writes a file of lines; returns its folder."""
    path.write_text("\n".join([header, *rows]) + "\n")
    return path.parent


def canonical(splits: dict[str, list]) -> list[bytes]:
    """All examples, in an order and with bytes that depend on their content alone.

    Stock gives a missing value the type of its column, ours none.
    """
    examples = [example for examples in splits.values() for example in examples]
    for example in examples:
        for feature in example.features.feature.values():
            kind = feature.WhichOneof("kind")
            if kind and not getattr(feature, kind).value:
                feature.ClearField(kind)
    return sorted(example.SerializeToString(deterministic=True) for example in examples)


def as_stock(generate, folder: Path, **options) -> tuple[list[bytes], list[bytes]]:
    """The examples of ours and of stock; ours is told which columns stock makes integers of."""
    stock = generate(folder, executor=StockExecutor)
    features = [e.features.feature.items() for examples in stock.values() for e in examples]
    whole = {name for row in features for name, f in row if f.WhichOneof("kind") == "int64_list"}
    told = {"whole_columns": tuple(whole), "number_columns": tuple(whole)}
    return canonical(generate(folder, **told, **options)), canonical(stock)


def test_taxi_data_gives_the_examples_of_stock(tmp_path, generate):
    header, *rows = TAXI.read_text().splitlines()
    write_csv(tmp_path / "data.csv", header, rows[::25])
    ours, stock = as_stock(generate, tmp_path, label="big_tipper", task="binary")
    assert len(ours) == 601
    assert ours == stock


def test_cells_are_read_as_stock_reads_them(tmp_path, generate):
    columns = {
        "integers": ["1", "", "-3", "+5", "007", " 8 ", "9223372036854775807"],
        "floats": ["1", "", "2.5", "1e3", ".5", "5.", "+7.5", "nan", "1e-400", "0.1"],
        "nothing": ["", '""'],
        "oversized": ["12", "9223372036854775808", "13"],
        "oversized_and_floats": ["1.5", "9223372036854775808", "13"],
        "hexadecimals": ["0x1F", "0X2", "0x3"],
        "texts": ["", "a", " b ", '"two\nlines"', '"a ""quote"""', '"a,b"', "üñ", "None", "NA"],
        "booleans": ["true", "false", "null"],
        "times": ["2020-01-01", "2021-02-03T04:05:06Z"],
        "label": ["0", "1"],
        "row": [str(row) for row in range(40)],
    }
    rows = [",".join(cells[i % len(cells)] for cells in columns.values()) for i in range(40)]
    write_csv(tmp_path / "data.csv", ",".join(columns), rows)
    csv = CsvSettings(strip=False)
    ours, stock = as_stock(generate, tmp_path, task="binary", csv=csv)
    assert len(ours) == 40
    assert ours == stock


def test_a_quotation_mark_within_a_word_is_a_character(tmp_path, read_rows):
    write_csv(tmp_path / "a.csv", rows=[f'{i % 2},{i},0,5" pipe' for i in range(39)])
    rows = read_rows(tmp_path)
    assert [row["name"] for row in rows] == [[b'5" pipe']] * 39


def test_windows_line_ends_and_blank_lines_are_read_as_stock_reads_them(tmp_path, generate):
    lines = [HEADER, *ROWS[:30], "", *ROWS[30:]]
    (tmp_path / "data.csv").write_bytes("\r\n".join(lines).encode())
    ours, stock = as_stock(generate, tmp_path)
    assert len(ours) == 60
    assert ours == stock


def test_types_come_from_all_rows_of_all_files(tmp_path, read_rows):
    write_csv(tmp_path / "a.csv", rows=ROWS[:30])
    write_csv(
        tmp_path / "b.csv",
        rows=[row.replace(f",{i},", f",{i}.5,", 1) for i, row in enumerate(ROWS[30:], 30)],
    )
    rows = read_rows(tmp_path)
    assert sorted(row["number"][0] for row in rows) == [
        *range(30),
        *(i + 0.5 for i in range(30, 60)),
    ]
    assert all(isinstance(row["number"][0], float) for row in rows)


def test_the_order_of_columns_may_differ_between_files(tmp_path, read_rows):
    write_csv(tmp_path / "a.csv")
    one = read_rows(tmp_path)
    flipped = [",".join(reversed(row.split(","))) for row in ROWS]
    write_csv(tmp_path / "b.csv", "name,share,number,label", flipped)
    assert read_rows(tmp_path) == one + one


def test_blocks_follow_each_other_with_the_right_row_numbers(tmp_path):
    folder = write_csv(
        tmp_path / "a.csv", rows=[f"{i % 2},{i},0,{'x' * 1000}" for i in range(9000)]
    )
    settings = ExampleGenSettings(format="csv", label="label", task="binary")
    source, files = make_source(settings), (str(folder / "a.csv"),)
    kinds = {name: column.kind for name, column in source.survey(files).columns.items()}
    batches = list(source.read(files, kinds))
    assert len(batches) > 1
    for batch in batches:
        assert batch.rows.column("number")[0].as_py() == [batch.first.row - 2]
    assert sum(batch.rows.num_rows for batch in batches) == 9000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEADER + "\n\n", ["a.csv has a header but no rows"]),
        ('label,x\n0,1\n1,"2\n0,3\n1,4\n', ["A quotation mark in", "a.csv is never closed"]),
        ('label,x,y\n0,1,2\n1,"2,4\n0,3,5\n', ["Row 3 of", "quotation mark in the row may not be"]),
        ('y,"x\n0,1\n1,2\n', ["a.csv"]),
        (
            "y,x\n0,1\n1,2\n",
            ["no label column 'label' in", "a.csv; the columns are x, y", "set data.label"],
        ),
    ],
)
def test_malformed_files_are_refused(tmp_path, read_error, content, words):
    (tmp_path / "a.csv").write_text(content)
    message = read_error(tmp_path)
    for word in words:
        assert word in message


def test_a_quotation_mark_that_swallows_more_than_a_block_is_refused(tmp_path, read_error):
    write_csv(tmp_path / "a.csv", "label,x", ["0,1", '1,"2', *(["0,3"] * 1_200_000)])
    assert "never closed, or a row is longer than 4 MiB" in read_error(tmp_path)


def mixed_rows() -> list[str]:
    """Numbers in column `number`, but for a text in row 52."""
    rows = list(ROWS)
    rows[50] = "2,fifty,1.0,name"
    return rows


def test_text_among_numbers_passes_where_it_is_declared(tmp_path, read_rows):
    write_csv(tmp_path / "a.csv", rows=mixed_rows())
    rows = read_rows(tmp_path, mixed_columns=("number",))
    assert {row["number"][0] for row in rows} == {
        b"fifty",
        *(b"%d" % i for i in range(60) if i != 50),
    }


def test_some_numbers_among_text_pass(tmp_path, read_rows):
    rows = [f"{i % 2},{'abc' if i % 3 else i}" for i in range(60)]
    write_csv(tmp_path / "a.csv", "label,code", rows)
    found = read_rows(tmp_path)
    assert {row["code"][0] for row in found} == {b"abc", *(b"%d" % i for i in range(0, 60, 3))}


def test_blank_lines_before_the_header_are_skipped(tmp_path, read_rows):
    write_csv(tmp_path / "a.csv")
    rows = read_rows(tmp_path)
    (tmp_path / "a.csv").write_text("\n\n" + (tmp_path / "a.csv").read_text())
    assert read_rows(tmp_path) == rows


@pytest.mark.parametrize(
    ("known", "whole", "expected"),
    [
        ("", (), [5.0]),
        ("", ("x",), [5]),
        ("FLOAT", (), [5.0]),
        ("FLOAT", ("x",), [5.0]),
        ("BYTES", (), [b"5"]),
        ("INT", (), [5]),
    ],
)
def test_whole_numbers_are_what_the_schema_has_or_numbers_that_may_have_a_fraction(
    known, whole, expected, tmp_path, read_rows
):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(f'feature {{ name: "x" type: {known} }}' if known else "")
    folder = write_csv(tmp_path / "data.csv", "label,x", ["1,5", "0,"])
    rows = read_rows(folder, pattern="*.csv", schema_file=str(schema), whole_columns=whole)
    assert [(row["x"], type(row["label"][0])) for row in rows] == [(expected, int), ([], int)]
    assert type(rows[0]["x"][0]) is type(expected[0])


@pytest.mark.parametrize("data_format", ["csv", "jsonl"])
def test_names_that_a_float_would_change_are_whole_numbers_from_then_on(
    data_format, tmp_path, read_rows
):
    """Where the config says only after the first run that they are names."""
    (tmp_path / "schema.pbtxt").write_text('feature { name: "day" type: FLOAT }')
    days, folder = [20230101, None, 20230102], tmp_path / "data"
    folder.mkdir()
    rows = [{"label": i % 2, "day": day} for i, day in enumerate(days)]
    if data_format == "csv":
        write_csv(folder / "a.csv", "label,day", [f"{r['label']},{r['day'] or ''}" for r in rows])
    else:
        (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = {"data_format": data_format, "schema_file": str(tmp_path / "schema.pbtxt")}
    named = read_rows(folder, **told, mixed_columns=("day",))
    assert [row["day"] for row in named] == [[20230101], [], [20230102]]
    assert isinstance(named[0]["day"][0], int)
    assert isinstance(read_rows(folder, **told)[0]["day"][0], float)


def test_text_is_no_number_whatever_the_schema_says(tmp_path, read_rows):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text('feature { name: "x" type: FLOAT }')
    folder = write_csv(tmp_path / "data.csv", "label,x", ["1,many"])
    assert read_rows(folder, pattern="*.csv", schema_file=str(schema))[0]["x"] == [b"many"]


def test_what_is_no_schema_is_said(tmp_path, read_error):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text("a schema")
    folder = write_csv(tmp_path / "data.csv", "label,x", ["1,5"])
    said = read_error(folder, pattern="*.csv", schema_file=str(schema))
    assert f"{schema} is not a schema in text format" in said


@pytest.mark.parametrize("known", ["BYTES", "FLOAT"])
def test_only_what_was_text_before_may_hold_mostly_numbers(known, tmp_path, read_rows, read_error):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(f'feature {{ name: "x" type: {known} }}')
    folder = write_csv(tmp_path / "data.csv", "label,x", ["1,17", "0,18", "1,A 19"])
    told = {"pattern": "*.csv", "schema_file": str(schema)}
    if known == "BYTES":
        assert [row["x"] for row in read_rows(folder, **told)] == [[b"17"], [b"18"], [b"A 19"]]
    else:
        said = read_error(folder, **told)
        assert "Column 'x' contains 2 numbers, but 'A 19' in row 4 of " in said


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
        f"column 'code' is read as numbers, but 1 of 401 values begin with 0, first '07' in row 402"
        f" of {file}; if the values are codes, write features: {{code: {{type: categorical}}}}"
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
