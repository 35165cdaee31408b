"""Rows that are counted before and after a step: which of them are compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.row_counts import check_rows, check_total, read_row_counts, write_row_counts
from trainer_module.errors import InternalError


def metrics(read: Mapping[tuple[str, str], int], written: Mapping[str, int]) -> Any:
    """What a pipeline counted: by step and file, and by folder."""

    def result(step: str, name: str, value: int) -> Any:
        key = SimpleNamespace(step=step, metric=SimpleNamespace(name=name))
        return SimpleNamespace(key=key, committed=value)

    def query(asked: Any) -> dict[str, list[Any]]:
        if "scopeline.rows_read" in asked.namespaces:
            return {"counters": [result(*key, value) for key, value in read.items()]}
        return {"counters": [result("Encode", name, value) for name, value in written.items()]}

    return SimpleNamespace(query=query)


@pytest.fixture
def spans(tmp_path: Path) -> list[str]:
    """The files of two spans of 10 rows each."""
    files = []
    for span in ("1", "2"):
        write_row_counts(str(_made(tmp_path / span)), {"Split-train/a.gz": 10})
        files.append(str(tmp_path / span / "Split-train" / "a.gz"))
    return files


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_each_step_reads_each_file_once(spans: list[str]) -> None:
    both = {"analyse": spans, "transform": spans}
    read = {(f"{step}/Read", file): 10 for step in both for file in spans}
    check_rows(metrics(read, {}), both)
    with pytest.raises(InternalError, match="0 of the 10 rows of"):
        check_rows(metrics({("analyse/Read", file): 10 for file in spans}, {}), both)


def test_what_is_written_may_be_in_several_folders(spans: list[str]) -> None:
    reading = {"transform": spans}
    read = {("transform/Read", file): 10 for file in spans}
    check_rows(metrics(read, {"out/1/Split-train": 10, "out/2/Split-train": 10}), reading)
    with pytest.raises(InternalError, match="Split-train has 19 of 20 rows"):
        check_rows(metrics(read, {"out/1/Split-train": 10, "out/2/Split-train": 9}), reading)


def test_files_without_counts_are_not_compared(spans: list[str], tmp_path: Path) -> None:
    old = str(tmp_path / "old" / "Split-train" / "a.gz")
    reading = {"transform": [*spans, old]}
    read = {("transform/Read", file): 10 for file in [*spans, old]}
    assert read_row_counts([*spans, old]) == dict.fromkeys(spans, 10)
    check_rows(metrics(read, {"out/Split-train": 31}), reading)
    check_total("the evaluation", 7, [*spans, old])
    check_total("the evaluation", 7, [])
    with pytest.raises(InternalError, match="the evaluation has 7 of 20 rows"):
        check_total("the evaluation", 7, spans)
