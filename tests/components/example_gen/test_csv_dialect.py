"""CSV dialects: delimiters, encodings, missing values and decimals are found or configured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfx.utils import proto_utils

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.executor import pack_settings, unpack_settings
from components.example_gen.formats import CsvSettings, ExampleGenSettings
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
    """Returns the notes on how a file is read."""
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
    ("delimiter", "name"),
    [
        (";", "semicolons"),
        ("\t", "tabs"),
        ("|", "bars"),
    ],
)
def test_delimiters_are_found(
    tmp_path: Path, read_rows: Rows, plain: list[dict], delimiter: str, name: str
) -> None:
    file = written(tmp_path, TEXT.replace(",", delimiter))
    assert read_rows(tmp_path, pattern="*.csv") == plain
    assert [name in note for note in notes(file)] == [True]


@pytest.mark.parametrize(
    ("encoding", "noted"),
    [
        ("utf-8-sig", ""),
        ("utf-16", "utf-16"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings_are_found(
    tmp_path: Path, read_rows: Rows, plain: list[dict], encoding: str, noted: str
) -> None:
    file = written(tmp_path, TEXT.encode(encoding))
    assert read_rows(tmp_path, pattern="*.csv") == plain
    assert [noted in note for note in notes(file)] == ([True] if noted else [])


def test_configured_dialect_is_used_as_given(
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


def test_latin_1_late_in_a_file_is_found_or_refused_with_its_line(
    tmp_path: Path, read_rows: Rows, read_error: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["label,x", *[f"{i % 2},{'x' * 1000}" for i in range(3000)], "1,caf\xe9"]
    written(tmp_path, "\n".join(lines).encode("latin-1"))
    assert read_rows(tmp_path)[-1]["x"] == ["café".encode()]
    monkeypatch.setattr("components.example_gen.sources.csv_dialect._ENCODING_BLOCKS", 1)
    message = read_error(tmp_path)
    assert "line 3002" in message
    assert "data.csv: {encoding: cp1252}" in message


def test_spaces_are_stripped_and_noted(tmp_path: Path, read_rows: Rows) -> None:
    file = written(
        tmp_path, "label, size ,plan\nyes , 1,gold\n no,  ,' silver'\nyes,3 ,\tgold \nyes,4,x\n"
    )
    rows = read_rows(tmp_path, task="binary", csv=CsvSettings(quote="'"))
    assert [row["label"] for row in rows[:3]] == [[b"yes"], [b"no"], [b"yes"]]
    assert [row["size"] for row in rows[:3]] == [[1], [], [3]]
    assert [row["plan"] for row in rows[:3]] == [[b"gold"], [b"silver"], [b"gold"]]
    (note,) = notes(file)
    assert "'label', 'plan' and 'size'" in note
    kept = read_rows(tmp_path, mixed_columns=(" size ",), csv=CsvSettings(strip=False))
    assert [row["label"] for row in kept[:3]] == [[b"yes "], [b" no"], [b"yes"]]
    assert notes(file, csv=CsvSettings(strip=False)) == ()


@pytest.mark.parametrize(
    ("missing", "number"),
    [
        ("NA", "{}"),
        ("?", "{}"),
        ("NaN", "{}.5"),
    ],
)
def test_words_among_numbers_are_missing_values_and_noted(
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
    found = [f"'{missing.strip()}' (26)" in note for note in note_columns(surveys, kinds, settings)]
    assert found == ([] if missing == "NaN" else [True])


@pytest.mark.parametrize(
    ("cells", "csv", "expected"),
    [
        (["-999.0", "7", "-9990"], {"missing_values": ["-999"]}, [[], [7.0], [-9990.0]]),
        (["-1.000,0", "7", "1"], {"missing_values": ["-1000"], "decimal": ","}, [[], [7.0], [1.0]]),
        (["999.0", "a", "999"], {"missing_values": ["999"]}, [[b"999.0"], [b"a"], []]),
    ],
)
def test_missing_values_are_compared_by_their_number(
    tmp_path: Path, read_rows: Rows, cells: list[str], csv: dict[str, Any], expected: list[Any]
) -> None:
    rows = [f"{i % 2};{cell}" for i, cell in enumerate(cells * 20)]
    file = written(tmp_path, "\n".join(["label;x", *rows]))
    settings = CsvSettings(**csv)
    found = read_rows(tmp_path, csv=settings, mixed_columns=("x",) if "a" in cells else ())
    assert [row["x"] for row in found[:3]] == expected
    assert survey(file, csv=settings).missing_values == set(csv["missing_values"])


def test_decimal_comma_is_read_only_where_configured(
    tmp_path: Path, read_rows: Rows, read_error: Callable[..., str]
) -> None:
    written(tmp_path, "label;x;day\n1;3,14;1.2.24\n0;-2.000,5;1,2,3\n1;1.234.567;a\n0;7;\n")
    message = read_error(tmp_path)
    assert f"'3,14' in row 2 of {tmp_path}/a.csv" in message
    assert 'data.csv: {decimal: ","}' in message
    rows = read_rows(tmp_path, csv=CsvSettings(decimal=","))
    assert [row["x"][0] for row in rows] == pytest.approx([3.14, -2000.5, 1234567, 7])
    assert [row["day"] for row in rows] == [[b"1.2.24"], [b"1,2,3"], [b"a"], []]


def test_columns_without_names_are_named_by_the_config(
    tmp_path: Path, read_rows: Rows, read_error: Callable[..., str]
) -> None:
    written(tmp_path, "".join(f"{i}.1,{i % 7},{'ab'[i % 2]}\n" for i in range(40)))
    message = read_error(tmp_path)
    assert f"{tmp_path}/a.csv" in message
    assert "data.csv: {header: [column_1, column_2, label]}" in message
    rows = read_rows(tmp_path, csv=CsvSettings(header=["x", "y", "label"]))
    assert len(rows) == 40
    assert rows[0] == {"x": [pytest.approx(0.1)], "y": [0], "label": [b"a"]}


def test_settings_reach_the_executor_wherever_it_runs() -> None:
    """As an execution property, which is a part of the cache key."""
    csv = CsvSettings(delimiter="\t", quote=None, header=["a", "label"], missing_values=["?", "é"])
    settings = ExampleGenSettings(format="csv", label="label", task="binary", csv=csv)
    packed = proto_utils.proto_to_json(pack_settings(settings))
    assert unpack_settings(packed) == settings
    plain = ExampleGenSettings(format="csv", label="label", task="binary")
    assert packed != proto_utils.proto_to_json(pack_settings(plain))
