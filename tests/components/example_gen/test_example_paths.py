"""Paths and their placeholders are understood, and missing files named, without TensorFlow."""

from __future__ import annotations

import subprocess
import sys

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
        ("{}/", "parquet", ("{}", "*.parquet")),
        ("{}", "images", ("{}", "*/*")),
        ("{}/*/part-*.csv", "csv", ("{}", "*/part-*.csv")),
        ("{}/day-{{SPAN}}/*", "csv", ("{}", "day-{{SPAN}}/*")),
        ("gs://bucket/data/*.csv", "csv", ("gs://bucket/data", "*.csv")),
        ("gs://bucket/data/", "idx", ("gs://bucket/data", "*")),
        ("gs://bucket/a.csv", "csv", ("gs://bucket", "a.csv")),
        ("a.csv", "csv", (".", "a.csv")),
        ("/*.csv", "csv", ("/", "*.csv")),
    ],
)
def test_resolve_input(tmp_path, path, data_format, expected):
    found = resolve_input(path.format(tmp_path), data_format)
    assert found == tuple(part.format(tmp_path) for part in expected)


@pytest.mark.parametrize(
    "pattern",
    ["*", "a.csv", "*.csv", "day-{SPAN}/*", "{YYYY}-{MM}-{DD}.txt", "day-{SPAN:1}/v{VERSION}.csv"],
)
def test_files_that_are_there(tmp_path, pattern):
    (tmp_path / "day-3").mkdir()
    for name in ("a.csv", "day-3/v1.csv", "2024-01-02.txt"):
        (tmp_path / name).touch()
    check_files_exist(str(tmp_path), pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("taxis.csv", ["taxis.csv'", "contains taxi.csv; did you mean 'taxi.csv'?"]),
        ("*.parquet", ["*.parquet'", "which contains taxi.csv", "correct data.path"]),
        ("none/*", ["none/*'", "which does not exist or is empty"]),
        ("day-{SPAN}/*", ["day-{SPAN}/*'", "which does not exist or is empty"]),
    ],
)
def test_files_that_are_not_there(tmp_path, pattern, words):
    (tmp_path / "taxi.csv").touch()
    (tmp_path / ".hidden").touch()
    with pytest.raises(DataError) as caught:
        check_files_exist(str(tmp_path), pattern)
    assert f"No file matches '{tmp_path}/" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_pictures_without_folders_of_classes(tmp_path):
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match=r"contains pictures: .* write data\.path: .*/\*"):
        check_files_exist(*resolve_input(str(tmp_path), "images"))
    check_files_exist(*resolve_input(f"{tmp_path}/*", "images"))


def test_paths_and_settings_need_no_tensorflow():
    code = (
        "import sys, components.example_gen.paths, components.example_gen.formats;"
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'tfx', 'apache_beam')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "pattern",
    [
        "*.csv",
        "{SPAN:3}/v{VERSION}/*.csv",
        "{YYYY}-{MM}-{DD}/*.csv",
        "{YYYY}/{MM}/{DD}/{HH}/v{VERSION:2}.csv",
        "{YYYY}-{MM}-{DD}/{HH}-*.parquet",
        "{6f1c}.csv",
    ],
)
def test_patterns_that_are_whole(pattern):
    assert pattern_fault(pattern) is None
    assert is_span_pattern(pattern) == ("{SPAN" in pattern or "{YYYY}" in pattern)
    assert is_hourly(pattern) == ("{HH}" in pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{HH}/*.csv", "found {HH} without {YYYY}, {MM} and {DD}; expected {YYYY}-{MM}-{DD}/{HH}"),
        ("{YYYY}/{MM}/*.csv", "found {YYYY} without {DD}; expected {YYYY}-{MM}-{DD}, or {SPAN}"),
        ("{YYYY}{MM}{DD}/{YYYY}.csv", "found {YYYY} twice; write it once"),
        ("{SPAN}/{HH}.csv", "found both {SPAN} and {HH}; spans are either numbers or dates"),
        ("v{VERSION}/*.csv", "found {VERSION} without a span; add {SPAN} or {YYYY}-{MM}-{DD}"),
        ("{YYYY}-{MM}-{DD}/{hh}/*.csv", "found {hh}; did you mean {HH}?"),
        ("{YYYYMMDD}/*.csv", "found {YYYYMMDD}; did you mean {YYYY}?"),
        ("{span:2}/*.csv", "found {span:2}; did you mean {SPAN}?"),
    ],
)
def test_patterns_that_are_not(pattern, words):
    assert words in (pattern_fault(pattern) or "")
