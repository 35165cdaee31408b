"""Which spans hold no row, in every format that comes in spans."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.sections.data import DataSettings
from pipeline.data.files import File, are_empty, locate_data
from pipeline.data.spans import list_spans
from pipeline.layout import Layout

HEADER = b'name,"two\nlines"\r\n'
RECORD = b"\x01" + b"\0" * 16


def parquet(rows: int) -> Callable[[Path], object]:
    table = pa.table({"a": list(range(rows))})
    return lambda path: pq.write_table(table, path)


def content(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def is_empty(path: Path, data_format: str, **csv: Any) -> bool:
    data = DataSettings.model_validate({"format": data_format, "path": "{SPAN}", "csv": csv})
    return are_empty([File(str(path), path.stat().st_size, path.stat().st_mtime)], data)


@pytest.mark.parametrize(
    ("data_format", "name", "without", "filled"),
    [
        ("csv", "a.csv", content(b""), content(HEADER + b"1,2\n")),
        ("csv", "a.csv", content(HEADER + b"\n\n"), content(HEADER + b"\n1,2\n")),
        ("jsonl", "a.jsonl", content(b"\n \n"), content(b'\n{"a": 1}\n')),
        ("tfrecord", "a.gz", content(gzip.compress(b"")), content(gzip.compress(RECORD))),
    ],
)
def test_files_without_a_row(
    data_format: str,
    name: str,
    without: Callable[[Path], object],
    filled: Callable[[Path], object],
    tmp_path: Path,
) -> None:
    for number, (write, expected) in enumerate(((without, True), (filled, False))):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        write(path)
        assert is_empty(path, data_format) is expected


@pytest.mark.parametrize(
    ("data_format", "pattern", "file"),
    [
        ("images", "{SPAN}/*/*", "cat/1.png"),
        ("csv", "{SPAN}/*.csv", "a.csv"),
        ("csv", "{SPAN}/v{VERSION}/*.csv", "v1/a.csv"),
    ],
)
def test_a_folder_without_files_is_a_span_without_rows(
    data_format: str, pattern: str, file: str, tmp_path: Path
) -> None:
    for path in ("1/" + file, "3/.upload"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("a\n1\n")
    (tmp_path / "2" / file).parent.mkdir(parents=True)
    (tmp_path / "1" / "v2").mkdir(exist_ok=True)
    data = DataSettings.model_validate({"format": data_format, "path": f"{tmp_path}/{pattern}"})
    spans = list_spans(data, locate_data(data, Layout(tmp_path / "out", "x")))
    assert [(s.number, are_empty(s.files, data)) for s in spans] == [(1, False), (2, True)]
    assert spans[1].modified == pytest.approx((tmp_path / "2").stat().st_mtime, abs=5)
