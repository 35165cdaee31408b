"""Paths and their placeholders are parsed, and missing files are refused."""

from __future__ import annotations

import pytest

from components.example_gen.paths import (
    check_files_exist,
    is_hourly,
    is_span_pattern,
    pattern_fault,
    resolve_input,
)
from trainer_module.errors import DataError


@pytest.mark.parametrize(
    ("path", "data_format", "expected"),
    [
        ("{}/a.csv", "csv", ("{}", "a.csv")),
        ("{}", "csv", ("{}", "*.csv*")),
        ("{}", "images", ("{}", "*/*")),
        ("{}/day-{{SPAN}}/*", "csv", ("{}", "day-{{SPAN}}/*")),
    ],
)
def test_path_is_split_into_folder_and_pattern(tmp_path, path, data_format, expected):
    found = resolve_input(path.format(tmp_path), data_format)
    assert found == tuple(part.format(tmp_path) for part in expected)


@pytest.mark.parametrize(
    "pattern",
    [
        "a.csv",
        "day-{SPAN}/*",
        "day-{SPAN:1}/v{VERSION}.csv",
    ],
)
def test_existing_files_are_found(tmp_path, pattern):
    (tmp_path / "day-3").mkdir()
    for name in ("a.csv", "day-3/v1.csv", "2024-01-02.txt"):
        (tmp_path / name).touch()
    check_files_exist(str(tmp_path), pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("taxis.csv", ["taxis.csv'", "'taxi.csv'?"]),
        ("*.parquet", ["*.parquet'", "taxi.csv", "data.path"]),
        ("day-{SPAN}/*", ["day-{SPAN}/*'"]),
    ],
)
def test_missing_files_are_refused(tmp_path, pattern, words):
    (tmp_path / "taxi.csv").touch()
    (tmp_path / ".hidden").touch()
    with pytest.raises(DataError) as caught:
        check_files_exist(str(tmp_path), pattern)
    assert f"No file matches '{tmp_path}/" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_pictures_without_class_folders_are_refused(tmp_path):
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match=r"data\.path: .*/\*"):
        check_files_exist(*resolve_input(str(tmp_path), "images"))
    check_files_exist(*resolve_input(f"{tmp_path}/*", "images"))


@pytest.mark.parametrize(
    "pattern",
    [
        "*.csv",
        "{YYYY}/{MM}/{DD}/{HH}/v{VERSION:2}.csv",
        "{6f1c}.csv",
    ],
)
def test_valid_patterns_of_spans(pattern):
    assert pattern_fault(pattern) is None
    assert is_span_pattern(pattern) == ("{SPAN" in pattern or "{YYYY}" in pattern)
    assert is_hourly(pattern) == ("{HH}" in pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{HH}/*.csv", "expected {YYYY}-{MM}-{DD}/{HH}"),
        ("{YYYY}{MM}{DD}/{YYYY}.csv", "{YYYY} twice"),
        ("v{VERSION}/*.csv", "{SPAN} or {YYYY}-{MM}-{DD}"),
        ("{YYYY}-{MM}-{DD}/{hh}/*.csv", "found {hh}; did you mean {HH}"),
    ],
)
def test_invalid_patterns_of_spans(pattern, words):
    assert words in (pattern_fault(pattern) or "")
