"""CSV gives the examples of TFX's CsvExampleGen, and types depend on all rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tfx
from tfx.components.example_gen.csv_example_gen.executor import Executor as StockExecutor

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.formats import CsvSettings, ExampleGenSettings
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
    """The examples of ours and of stock; the columns that are integers in stock are declared."""
    stock = generate(folder, executor=StockExecutor)
    features = [e.features.feature.items() for examples in stock.values() for e in examples]
    whole = {name for row in features for name, f in row if f.WhichOneof("kind") == "int64_list"}
    declared = {"whole_columns": tuple(whole), "number_columns": tuple(whole)}
    return canonical(generate(folder, **declared, **options)), canonical(stock)


@pytest.mark.slow
def test_taxi_data_gives_the_examples_of_tfx(tmp_path, generate):
    header, *rows = TAXI.read_text().splitlines()
    write_csv(tmp_path / "data.csv", header, rows[::25])
    ours, stock = as_stock(generate, tmp_path, label="big_tipper", task="binary")
    assert len(ours) == 601
    assert ours == stock


def test_rows_become_examples(tmp_path, generate):
    write_csv(tmp_path / "a.csv", rows=[*ROWS[:20], "1,,0.5,", "2,7,,last"])
    examples = [e.features.feature for split in generate(tmp_path).values() for e in split]
    rows = sorted(
        (
            *row["label"].int64_list.value,
            list(row["number"].float_list.value),
            list(row["share"].float_list.value),
            list(row["name"].bytes_list.value),
        )
        for row in examples
    )
    plain = [(i % 3, [i], [i / 8], [b"name %d" % i]) for i in range(20)]
    assert rows == sorted([*plain, (1, [], [0.5], []), (2, [7], [], [b"last"])])


@pytest.mark.slow
def test_cells_are_read_as_by_tfx(tmp_path, generate):
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEADER + "\n\n", ["a.csv"]),
        ('label,x\n0,1\n1,"2\n0,3\n1,4\n', ["quotation mark", "a.csv"]),
        (
            "y,x\n0,1\n1,2\n",
            ["'label'", "a.csv", "x, y", "data.label"],
        ),
    ],
)
def test_malformed_files_are_refused(tmp_path, read_error, content, words):
    (tmp_path / "a.csv").write_text(content)
    message = read_error(tmp_path)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("known", "whole", "expected"),
    [
        ("", (), [5.0]),
        ("", ("x",), [5]),
        ("FLOAT", ("x",), [5.0]),
        ("BYTES", (), [b"5"]),
    ],
)
def test_whole_numbers_have_the_type_of_the_schema_or_float(
    known, whole, expected, tmp_path, read_rows
):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(f'feature {{ name: "x" type: {known} }}' if known else "")
    folder = write_csv(tmp_path / "data.csv", "label,x", ["1,5", "0,"])
    rows = read_rows(folder, pattern="*.csv", schema_file=str(schema), whole_columns=whole)
    assert [(row["x"], type(row["label"][0])) for row in rows] == [(expected, int), ([], int)]
    assert type(rows[0]["x"][0]) is type(expected[0])


@pytest.mark.parametrize("data_format", ["csv", "jsonl"])
def test_identifiers_that_a_float_cannot_hold_become_integers(data_format, tmp_path, read_rows):
    """The config declares them as identifiers only after the first run."""
    (tmp_path / "schema.pbtxt").write_text('feature { name: "day" type: FLOAT }')
    days, folder = [20230101, None, 20230102], tmp_path / "data"
    folder.mkdir()
    rows = [{"label": i % 2, "day": day} for i, day in enumerate(days)]
    if data_format == "csv":
        write_csv(folder / "a.csv", "label,day", [f"{r['label']},{r['day'] or ''}" for r in rows])
    else:
        (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = {"data_format": data_format, "schema_file": str(tmp_path / "schema.pbtxt")}
    named = read_rows(folder, **options, mixed_columns=("day",))
    assert [row["day"] for row in named] == [[20230101], [], [20230102]]
    assert isinstance(named[0]["day"][0], int)
    assert isinstance(read_rows(folder, **options)[0]["day"][0], float)


@pytest.mark.parametrize("known", ["BYTES", "FLOAT"])
def test_mostly_numbers_are_accepted_only_where_the_schema_has_text(
    known, tmp_path, read_rows, read_error
):
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(f'feature {{ name: "x" type: {known} }}')
    folder = write_csv(tmp_path / "data.csv", "label,x", ["1,17", "0,18", "1,A 19"])
    options = {"pattern": "*.csv", "schema_file": str(schema)}
    if known == "BYTES":
        assert [row["x"] for row in read_rows(folder, **options)] == [[b"17"], [b"18"], [b"A 19"]]
    else:
        assert "'A 19' in row 4 of " in read_error(folder, **options)


ZIPS = ["02139", "2139", "10001", ""] * 10
DAYS = ["20260131", "", "20250228"]
AMOUNTS = ["850", '"1,200"', "999.50", "NA", "($3)", '"$1,234.50"'] * 3
SLIP = [str(i) for i in range(10, 410)] + ["07"]


def write(folder: Path, values: list[str], name: str = "a.csv") -> Path:
    rows = (f"{i % 2},{value}" for i, value in enumerate(values))
    (folder / name).write_text("\n".join(["label,code", *rows]) + "\n")
    return folder / name


def kind_of(folder: Path, **changes: object) -> ColumnKind:
    settings = ExampleGenSettings(format="csv", **{"label": "label", "task": "binary", **changes})
    source = make_source(settings)
    surveys = [source.survey((str(file),)) for file in sorted(folder.glob("*.csv"))]
    return merge_surveys(surveys, settings)["code"]


def test_codes_with_leading_zeros_stay_text(tmp_path, generate):
    write(tmp_path, ZIPS)
    rows = [row for split in generate(tmp_path, task="binary").values() for row in split]
    values = [row.features.feature["code"].bytes_list.value[:] for row in rows]
    assert {value[0] for value in values if value} == {b"02139", b"2139", b"10001"}


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        (ZIPS, {}, ColumnKind.BYTES),
        (SLIP, {}, ColumnKind.FLOAT),
        (SLIP, {"mixed_columns": ("code",)}, ColumnKind.BYTES),
        (ZIPS, {"number_columns": ("code",)}, ColumnKind.FLOAT),
        (ZIPS, {"label": "code", "task": "regression"}, ColumnKind.FLOAT),
        (ZIPS, {"label": "code", "task": "multiclass"}, ColumnKind.BYTES),
        (DAYS, {}, ColumnKind.BYTES),
        ([*DAYS, "20260230"], {}, ColumnKind.FLOAT),
        (AMOUNTS, {}, ColumnKind.BYTES),
    ],
)
def test_column_kind_of_codes_dates_and_amounts(tmp_path, values, settings, expected):
    write(tmp_path, values)
    assert kind_of(tmp_path, **settings) is expected


@pytest.mark.parametrize("slip", ["12x", '"3,5"'])
def test_invalid_amount_is_refused(tmp_path, slip):
    write(tmp_path, [*AMOUNTS, slip, *["7"] * 90])
    with pytest.raises(DataError, match="'code'"):
        kind_of(tmp_path)
