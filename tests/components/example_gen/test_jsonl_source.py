"""JSON lines: types of the values, nested objects, and invalid lines by number."""

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


def test_values_have_the_types_of_json(tmp_path: Path, read) -> None:
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


def test_nested_objects_are_columns_named_by_path(tmp_path: Path, read) -> None:
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


def test_rows_of_files_and_blocks_are_read_in_order(
    tmp_path: Path, read, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_json_lines_become_examples(tmp_path: Path, generate) -> None:
    write(tmp_path, *({"label": i % 2, "a": {"b": i}, "words": ["x"] * (i % 3)} for i in range(40)))
    splits = generate(tmp_path, "jsonl", pattern=FOLDER_PATTERN, task="binary")
    examples = [e.features.feature for examples in splits.values() for e in examples]
    assert sorted(e["a.b"].float_list.value[0] for e in examples) == list(range(40))
    assert {len(e["words"].bytes_list.value) for e in examples} == {0, 1, 2}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["[", '{"label": 1},', "]"], ["JSON array"]),
        ([{"label": 1}, "", "7"], ["Line 3 of"]),
        ([{"x": 1}, "", {"x": "one"}], ["'x'", "in line 3 of"]),
        (['{"x": 1, "x": 2}'], ["'x'", "line 1 of"]),
    ],
)
def test_invalid_lines_are_refused_with_their_number(
    tmp_path: Path, read_error, rows: list, words: list
) -> None:
    write(tmp_path, *rows)
    message = read_error(tmp_path, "jsonl")
    assert "a.jsonl" in message
    for word in words:
        assert word in message
