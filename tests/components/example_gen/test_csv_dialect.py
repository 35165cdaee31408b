"""CSV as other programs write it: what is found by itself, what is said, and what has to be."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfx.utils import proto_utils

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.executor import pack_settings, unpack_settings
from components.example_gen.formats import CsvSettings, ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.sources import make_source
from components.example_gen.sources.base import Survey
from components.example_gen.sources.surveys import merge_surveys, note_columns

TEXT = "label,Größe,plan\n" + "".join(f"{i % 2},{i}.5,naïve {i % 3}\n" for i in range(40))
Rows = Callable[..., list[dict]]


def survey(file: Path, **settings: object) -> Survey:
    """What a first pass over a file finds."""
    source = make_source(ExampleGenSettings(format="csv", label="label", task="binary", **settings))
    return source.survey((str(file),))


def notes(file: Path, **settings: object) -> tuple[str, ...]:
    """What is said of how a file is read."""
    return survey(file, **settings).notes


def written(folder: Path, content: str | bytes, name: str = "a.csv") -> Path:
    """A file below a folder; text is written in UTF-8."""
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.fixture
def plain(tmp_path: Path, read_rows: Rows) -> list[dict]:
    """The rows of the text, read as comma-separated UTF-8."""
    (tmp_path / "plain").mkdir()
    file = written(tmp_path / "plain", TEXT)
    assert notes(file) == ()
    return read_rows(file.parent)


@pytest.mark.parametrize(
    ("delimiter", "said"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars"), (",", "")]
)
def test_delimiters_are_found(
    tmp_path: Path, read_rows: Rows, plain: list[dict], delimiter: str, said: str
) -> None:
    file = written(tmp_path, TEXT.replace(",", delimiter))
    assert read_rows(tmp_path, pattern="*.csv") == plain
    assert notes(file) == ((f"cells are separated by {said}",) if said else ())


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8-sig", ""),
        ("utf-16", "utf-16"),
        ("utf-32", "utf-32"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings_are_found(
    tmp_path: Path, read_rows: Rows, plain: list[dict], encoding: str, said: str
) -> None:
    file = written(tmp_path, TEXT.encode(encoding))
    assert read_rows(tmp_path, pattern="*.csv") == plain
    assert notes(file) == ((f"the encoding is {said}",) if said else ())


def test_each_file_is_looked_at_by_itself(
    tmp_path: Path, read_rows: Rows, plain: list[dict]
) -> None:
    written(tmp_path, TEXT)
    written(tmp_path, gzip.compress(TEXT.replace(",", ";").encode("utf-16")), "b.csv.gz")
    assert read_rows(tmp_path, pattern="*.csv*") == plain + plain


def test_what_the_config_says_is_not_guessed(
    tmp_path: Path, read_rows: Rows, plain: list[dict]
) -> None:
    # Two bytes that are UTF-8, too; and bars that are a part of the text.
    text = TEXT.replace("naïve", "Ã©|").replace(",", "!")
    file = written(tmp_path, text.encode("cp1252"))
    csv = CsvSettings(delimiter="!", encoding="cp1252")
    rows = read_rows(tmp_path, pattern="*.csv", csv=csv)
    assert rows[0]["plan"] == ["Ã©| 0".encode()]
    assert [row["Größe"] for row in rows] == [row["Größe"] for row in plain]
    assert notes(file, csv=csv) == ()


def test_latin_1_far_into_a_file_is_found_and_further_on_said(
    tmp_path: Path, read_rows: Rows, read_error: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["label,x", *[f"{i % 2},{'x' * 1000}" for i in range(3000)], "1,caf\xe9"]
    written(tmp_path, "\n".join(lines).encode("latin-1"))
    assert read_rows(tmp_path)[-1]["x"] == ["café".encode()]
    monkeypatch.setattr("components.example_gen.sources.csv_dialect._ENCODING_BLOCKS", 1)
    said = read_error(tmp_path)
    assert "a.csv is read as utf-8, but line 3002 contains bytes that are invalid in utf-8" in said
    assert "data.csv: {encoding: cp1252}" in said


def test_spaces_are_taken_away_and_it_is_said(tmp_path: Path, read_rows: Rows) -> None:
    file = written(
        tmp_path, "label, size ,plan\nyes , 1,gold\n no,  ,' silver'\nyes,3 ,\tgold \nyes,4,x\n"
    )
    rows = read_rows(tmp_path, task="binary", csv=CsvSettings(quote="'"))
    assert [row["label"] for row in rows[:3]] == [[b"yes"], [b"no"], [b"yes"]]
    assert [row["size"] for row in rows[:3]] == [[1], [], [3]]
    assert [row["plan"] for row in rows[:3]] == [[b"gold"], [b"silver"], [b"gold"]]
    (note,) = notes(file)
    assert note.startswith("spaces around values or names of 'label', 'plan' and 'size' are")
    kept = read_rows(tmp_path, mixed_columns=(" size ",), csv=CsvSettings(strip=False))
    assert [row["label"] for row in kept[:3]] == [[b"yes "], [b" no"], [b"yes"]]
    assert notes(file, csv=CsvSettings(strip=False)) == ()


@pytest.mark.parametrize(
    ("missing", "number"),
    [("NA", "{}"), ("n/a", "{}.5"), ("?", "{}"), (" - ", "{}.5"), ("NONE", "{}"), ("NaN", "{}.5")],
)
def test_words_among_numbers_are_missing_and_told(
    tmp_path: Path, read_rows: Rows, missing: str, number: str
) -> None:
    rows = [f"{i % 2},{missing if i % 3 else number.format(i)}" for i in range(40)]
    file = written(tmp_path, "\n".join(["label,x", *rows]))
    known = [row["x"] for row in read_rows(tmp_path) if row["x"] and not np.isnan(row["x"][0])]
    assert known == [[float(number.format(i))] for i in range(0, 40, 3)]
    settings = ExampleGenSettings(format="csv", label="label", task="binary")
    surveys = [make_source(settings).survey((str(file),))]
    kinds = merge_surveys(surveys, settings)
    assert kinds["x"] is ColumnKind.FLOAT
    said = f"column 'x': among 14 numbers '{missing.strip()}' (26) count as missing"
    assert [*note_columns(surveys, kinds, settings)] == ([] if missing == "NaN" else [said])


@pytest.mark.parametrize("word", ["NA", "none"])
def test_words_among_text_and_classes_are_values(
    tmp_path: Path, read_rows: Rows, word: str
) -> None:
    written(tmp_path, f"label,x,y,z\n1,2,{word},a\n{word},{word},{word},{word}\n0,3,{word},b\n")
    found = read_rows(tmp_path, task="multiclass", mixed_columns=("x",))
    text = word.encode()
    assert [[row[name] for name in "xyz"] for row in found] == [
        [[b"2"], [text], [b"a"]],
        [[text], [text], [text]],
        [[b"3"], [text], [b"b"]],
    ]
    assert [row["label"] for row in found] == [[b"1"], [text], [b"0"]]


def test_column_of_numbers_stays_one_on_a_day_of_words_alone(
    tmp_path: Path, read_rows: Rows
) -> None:
    schema = tmp_path / "schema.pbtxt"
    schema.write_text('feature { name: "x" type: FLOAT }')
    written(tmp_path, "label,x\n1,NA\n0,?\n")
    found = read_rows(tmp_path, task="binary", schema_file=str(schema), pattern="*.csv")
    assert [row["x"] for row in found] == [[], []]


def test_text_beside_words_for_missing_numbers_is_named(
    tmp_path: Path, read_error: Callable[..., str]
) -> None:
    rows = [f"{i % 2},{('NA', '?', i)[i % 3] if i < 39 else 'big'}" for i in range(40)]
    written(tmp_path, "\n".join(["label,x", *rows]))
    assert "Column 'x' contains 13 numbers, but 'big' in row 41 of" in read_error(tmp_path)


@pytest.mark.parametrize(
    ("cells", "csv", "expected"),
    [
        (["-999.0", "7", "-9990"], {"missing_values": ["-999"]}, [[], [7.0], [-9990.0]]),
        (["-999", "7.5", "1"], {"missing_values": ["-999.00"]}, [[], [7.5], [1.0]]),
        (["-999", " 7", "1"], {"missing_values": ["-999.0"]}, [[], [7], [1]]),
        (["-1.000,0", "7", "1"], {"missing_values": ["-1000"], "decimal": ","}, [[], [7.0], [1.0]]),
        (["999.0", "a", "999"], {"missing_values": ["999"]}, [[b"999.0"], [b"a"], []]),
    ],
)  # fmt: skip
def test_numbers_that_mean_missing_are_told_by_their_value(
    tmp_path: Path, read_rows: Rows, cells: list[str], csv: dict[str, Any], expected: list[Any]
) -> None:
    rows = [f"{i % 2};{cell}" for i, cell in enumerate(cells * 20)]
    file = written(tmp_path, "\n".join(["label;x", *rows]))
    settings = CsvSettings(**csv)
    found = read_rows(tmp_path, csv=settings, mixed_columns=("x",) if "a" in cells else ())
    assert [row["x"] for row in found[:3]] == expected
    assert survey(file, csv=settings).missing_values == set(csv["missing_values"])


def test_a_value_that_occurs_in_no_cell_is_told(
    tmp_path: Path, execute: Callable[..., Any]
) -> None:
    for name, missing in (("a", "NA"), ("b", "-1.0")):
        rows = [f"{i % 2},{i if i % 3 else missing}" for i in range(40)]
        written(tmp_path, "\n".join(["label,x", *rows]), f"{name}.csv")
    csv = CsvSettings(missing_values=["NA", "-1", "NONE", "-9"])
    said = "data.csv.missing_values: 'NONE' and '-9' occur in no cell of the data"
    assert read_notes(execute(tmp_path, task="binary", csv=csv)).sentences == [said]


def test_a_word_among_words_is_no_missing_number(tmp_path: Path, read_rows: Rows) -> None:
    rows = [f"{i % 2},{('NA', 'DE', '-', '7')[i % 4]}" for i in range(40)]
    written(tmp_path, "\n".join(["label,x", *rows]))
    assert read_rows(tmp_path)[0]["x"] == [b"NA"]


def test_a_decimal_comma_is_told_and_read(
    tmp_path: Path, read_rows: Rows, read_error: Callable[..., str]
) -> None:
    written(tmp_path, "label;x;day\n1;3,14;1.2.24\n0;-2.000,5;1,2,3\n1;1.234.567;a\n0;7;\n")
    said = read_error(tmp_path)
    assert f"'3,14' in row 2 of {tmp_path}/a.csv" in said
    assert 'write `data.csv: {decimal: ","}`' in said
    rows = read_rows(tmp_path, csv=CsvSettings(decimal=","))
    assert [row["x"][0] for row in rows] == pytest.approx([3.14, -2000.5, 1234567, 7])
    assert [row["day"] for row in rows] == [[b"1.2.24"], [b"1,2,3"], [b"a"], []]


def test_columns_without_names_are_named_by_the_config(
    tmp_path: Path, read_rows: Rows, read_error: Callable[..., str]
) -> None:
    written(tmp_path, "".join(f"{i}.1,{i % 7},{'ab'[i % 2]}\n" for i in range(40)))
    said = read_error(tmp_path)
    assert f"The first row of {tmp_path}/a.csv looks like data ('0.1', '0', 'a')" in said
    assert "data.csv: {header: [column_1, column_2, label]}" in said
    rows = read_rows(tmp_path, csv=CsvSettings(header=["x", "y", "label"]))
    assert len(rows) == 40
    assert rows[0] == {"x": [pytest.approx(0.1)], "y": [0], "label": [b"a"]}


def test_marks_that_quote_nothing_are_text(tmp_path: Path, read_rows: Rows) -> None:
    written(tmp_path, 'label,x\n1,5"\n0,"a\n')
    rows = read_rows(tmp_path, csv=CsvSettings(quote=None))
    assert [row["x"] for row in rows] == [[b'5"'], [b'"a']]


def test_settings_reach_the_executor_wherever_it_runs() -> None:
    """As an execution property, which is a part of the cache key."""
    csv = CsvSettings(delimiter="\t", quote=None, header=["a", "label"], missing_values=["?", "é"])
    settings = ExampleGenSettings(format="csv", label="label", task="binary", csv=csv)
    packed = proto_utils.proto_to_json(pack_settings(settings))
    assert unpack_settings(packed) == settings
    plain = ExampleGenSettings(format="csv", label="label", task="binary")
    assert packed != proto_utils.proto_to_json(pack_settings(plain))


@pytest.mark.parametrize(
    ("encoding", "delimiter", "csv"),
    [
        ("utf-16", "\t", {}),
        ("utf-16-le", ";", {"encoding": "utf-16-le"}),
        ("utf-8", "\x01", {"delimiter": "\x01"}),
    ],
)
def test_text_with_control_bytes_is_read(
    tmp_path: Path, encoding: str, delimiter: str, csv: dict[str, str]
) -> None:
    rows = [["label", "город"], *([str(i % 2), "Ёж да"] for i in range(40))]
    text = "".join(f"{delimiter.join(row)}\n" for row in rows)
    file = written(tmp_path, text.encode(encoding))
    assert set(survey(file, csv=CsvSettings(**csv)).columns) == {"label", "город"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("2026-01-05  10:00\t1\n2026-01-06  10:00\t0\n", ["time", "label"]),
        ("[[1]]\t1\n[[2]]\t0\n", ["sizes", "label"]),
    ],
)
def test_tabs_separate_the_columns_of_a_configured_header(
    tmp_path: Path, read_rows: Rows, text: str, names: list[str]
) -> None:
    written(tmp_path, text)
    found = read_rows(tmp_path, csv=CsvSettings(header=names))
    values = [line.split("\t")[0].encode() for line in text.splitlines()]
    assert [row[names[0]] for row in found] == [[value] for value in values]


def test_columns_after_blank_lines_are_found(
    tmp_path: Path, read_error: Callable[..., str]
) -> None:
    written(tmp_path, "\n" * 3000 + "a  label\n1  2\n3  4\n")
    assert "separates its columns by several spaces" in read_error(tmp_path)
