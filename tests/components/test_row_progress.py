"""Rows that several processes read are counted in one figure."""

from __future__ import annotations

import logging
import multiprocessing
import resource
import tempfile
from pathlib import Path

import numpy as np
import pytest

from components import row_progress
from components.row_progress import count_rows, expect_rows, report_batches, report_rows
from trainer_module.runtime import PROGRESS_LOGGER


def read_elsewhere(path: str, line: int) -> None:
    """Reads rows in a process of its own, in two batches."""
    row_progress.share_counts(path, line)
    count_rows(100)
    count_rows(20)


def run_processes() -> None:
    spawn = multiprocessing.get_context("spawn")
    arguments = [(row_progress.shared_path, line) for line in (1, 2)]
    processes = [spawn.Process(target=read_elsewhere, args=given) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=PROGRESS_LOGGER)
    return caplog


@pytest.mark.slow
def test_processes_count_together(shown: pytest.LogCaptureFixture) -> None:
    with report_rows(250, workers=2):
        count_rows(10)
        run_processes()
    assert shown.messages[-1] == "250 of 250 rows read"


@pytest.mark.parametrize(("more", "text"), [(80, "40 of 100 rows read"), (0, "40 rows read")])
def test_a_total_may_be_known_later(shown: pytest.LogCaptureFixture, more: int, text: str) -> None:
    with report_rows(0, workers=0):
        count_rows(20)
        if more:
            expect_rows(more)
        count_rows(20)
    assert shown.messages[-1] == text


def test_shared_counts_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with report_rows(9, workers=0), report_rows(3, workers=0):
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # As if the disk were full.
    try:
        with report_rows(9, workers=1):
            row_progress.share_counts(row_progress.shared_path, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_rows_of_batches_are_counted(
    shown: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_progress, "_PERIOD", 0)
    batches = [np.arange(3), np.arange(2)]
    assert [len(batch) for batch in report_batches(batches, 5)] == [3, 2]
    assert shown.messages == ["3 of 5 rows read", "5 of 5 rows read"]
