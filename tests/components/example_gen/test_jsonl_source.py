"""JSON lines: types from the values, objects in objects by path, broken lines by number."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.example_gen.sources import jsonl_source

FOLDER_PATTERN = "*.jsonl*"


def write(folder: Path, *rows: Any, name: str = "a.jsonl") -> Path:
    """Writes a row a line; text as it stands."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / name).write_text("".join(line + "\n" for line in lines))
    return folder


@pytest.fixture
def read(read_rows: Callable[..., list[dict]]) -> Callable[..., list[dict]]:
    """The rows of a folder's files."""

    def run(folder: Path, **settings: Any) -> list[dict]:
        return read_rows(folder, "jsonl", pattern=FOLDER_PATTERN, **settings)

    return run


def test_values_are_what_json_says_they_are(tmp_path: Path, read) -> None:
    write(
        tmp_path,
        {"label": True, "n": 1, "x": 1, "t": "2024-05-01", "tags": ["a", "b"], "no": None},
        "",
        {"label": False, "n": None, "x": 2.5, "t": "2024-05-01T10:00:00", "tags": [], "no": None},
        {"label": True, "n": 3, "t": None, "tags": [None, "c"], "late": "ü"},
    )
    assert read(tmp_path) == [
        {"label": [1], "n": [1], "x": [1.0], "t": [b"2024-05-01"], "tags": [b"a", b"b"]}
        | {"no": [], "late": []},
        {"label": [0], "n": [], "x": [2.5], "t": [b"2024-05-01T10:00:00"], "tags": []}
        | {"no": [], "late": []},
        {"label": [1], "n": [3], "x": [], "t": [], "tags": [b"c"], "no": []}
        | {"late": ["ü".encode()]},
    ]


def test_nulls_before_the_first_value_of_lists(tmp_path: Path, read) -> None:
    write(
        tmp_path,
        {"label": 0, "n": [None, 1], "t": [None], "in": {"x": [None, 2.5]}, "no": [None]},
        {"label": 1, "n": [2], "t": ["a", None, "b"], "in": {"x": []}, "no": []},
    )
    assert read(tmp_path) == [
        {"label": [0], "n": [1], "t": [], "in.x": [2.5], "no": []},
        {"label": [1], "n": [2], "t": [b"a", b"b"], "in.x": [], "no": []},
    ]


def test_objects_within_objects_are_named_by_their_path(tmp_path: Path, read) -> None:
    write(
        tmp_path,
        {"label": 0, "home": {"city": "Ulm", "at": {"x": 1.5, "when": "2024-05-01"}}},
        {"label": 1, "home": None},
        {"label": 1, "home": {"at": {"x": 2}}},
    )
    rows = read(tmp_path)
    assert rows[0] == {
        "label": [0],
        "home.city": [b"Ulm"],
        "home.at.x": [1.5],
        "home.at.when": [b"2024-05-01"],
    }
    assert [row["home.at.x"] for row in rows] == [[1.5], [], [2.0]]


def test_files_and_blocks_add_up(tmp_path: Path, read, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"label": i % 2, "x": i if i < 50 else i / 2, f"k{i % 3}": "v"} for i in range(90)]
    write(tmp_path, *rows)
    whole = read(tmp_path)
    monkeypatch.setattr(jsonl_source, "_BLOCK_BYTES", 256)
    assert read(tmp_path) == whole
    assert whole[1] == {"label": [1], "x": [1.0], "k0": [], "k1": [b"v"], "k2": []}
    (tmp_path / "a.jsonl").unlink()
    write(tmp_path, *rows[:40])
    text = "".join(json.dumps(row) + "\n" for row in rows[40:])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert read(tmp_path) == whole


def test_the_schema_keeps_the_type_of_a_number(tmp_path: Path, read) -> None:
    (tmp_path / "schema.pbtxt").write_text('feature { name: "x" type: FLOAT }')
    write(tmp_path, {"label": 0, "x": 1}, {"label": 1, "x": 2})
    (first, _) = read(tmp_path, schema_file=str(tmp_path / "schema.pbtxt"))
    assert isinstance(first["x"][0], float)


def test_examples_are_made_of_them(tmp_path: Path, generate) -> None:
    write(tmp_path, *({"label": i % 2, "a": {"b": i}, "words": ["x"] * (i % 3)} for i in range(40)))
    splits = generate(tmp_path, "jsonl", pattern=FOLDER_PATTERN, task="binary")
    examples = [e.features.feature for examples in splits.values() for e in examples]
    assert sorted(e["a.b"].float_list.value[0] for e in examples) == list(range(40))
    assert {len(e["words"].bytes_list.value) for e in examples} == {0, 1, 2}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["[", '{"label": 1},', "]"], ["is a JSON array", "write one object per line"]),
        ([{"label": 1}, "", "7"], ["Line 3 of", "found a int"]),
        ([{"x": 1}, "", {"x": "one"}], ["Key 'x' changed from number to string in line 3 of"]),
        ([{"x": {"y": [1]}}, {"x": {"y": ["a"]}}], ["Key 'x.y' changed from number to string"]),
        (['\0{"label": 1}'], ["Line 1 of", "not a JSON object"]),
        (['{"x": 1, "x": 2}'], ["Key 'x' was specified twice in line 1 of"]),
        ([{"x.y": 1, "x": {"y": 2}}], ["contains 'x.y' twice"]),
        ([{"": 1, "label": 2}], ["contains an empty key"]),
        ([{}, {}], ["contains no object with keys"]),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, read_error, rows: list, words: list) -> None:
    write(tmp_path, *rows)
    said = read_error(tmp_path, "jsonl")
    assert "a.jsonl" in said
    for word in words:
        assert word in said


def test_types_that_differ_between_blocks_are_said(
    tmp_path: Path, read_error, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_source, "_BLOCK_BYTES", 64)
    rows = [{"label": i % 2, "x": i if i < 50 else f"number {i}"} for i in range(90)]
    write(tmp_path, *rows)
    said = read_error(tmp_path, "jsonl")
    assert "Key 'x'" in said
    assert "51 of" in said or "row 5" in said
