"""The names of runs: last, previous, the beginning of an id, and folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.layout import Layout
from pipeline.records.run_folders import (
    StoredRun,
    find_run,
    list_runs,
    read_earlier,
)
from pipeline.records.summary import RunSummary
from trainer_module.errors import ConfigError, DataError

IDS = ["2026-01-05T03-00-00.000001", "2026-01-06T03-00-00.000001", "2026-01-06T04-00-00.000001"]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path, "cars")
    for run_id in IDS:
        summary = RunSummary(run_id=run_id, pipeline="cars", started="now", strategy="default")
        found.run(run_id).root.mkdir(parents=True)
        summary.write(found.run(run_id).summary)
    return found


def test_run_is_found_by_each_kind_of_name(layout: Layout) -> None:
    folder = layout.run(IDS[0]).root
    # A retention that was stopped has left a part of a run, whose folder has changed last.
    (folder.parent / f".deleted-{IDS[0]}").mkdir()
    names = ["last", "previous", "2026-01-05", IDS[1], str(folder), str(folder / "summary.json")]
    found = [find_run(layout, name) for name in names]
    assert [run.id for run in found] == [IDS[2], IDS[1], IDS[0], IDS[1], IDS[0], IDS[0]]
    assert {run.pipeline for run in found} == {"cars"}
    assert found[-1].read().run_id == IDS[0]


def test_runs_of_kubeflow_are_in_the_order_of_their_starts(tmp_path: Path) -> None:
    starts = {
        "b7": "2026-01-02T03:00:00+05:00",
        "f0": "2026-01-01T23:00:00+00:00",
        "a1": "2026-01-02T00:00:00+00:00",
        "d4": None,
    }
    found = Layout(tmp_path, "cars")
    (tmp_path / "cars" / "runs").mkdir(parents=True)
    (tmp_path / "cars" / "runs" / "latest").symlink_to("deleted")
    for run_id, started in starts.items():
        files = found.run(run_id)
        files.root.mkdir()
        summary = RunSummary(run_id=run_id, pipeline="cars", started=started or "", strategy="")
        summary.write(files.summary)
        if started is None:
            files.summary.write_text("{")
    os.utime(found.run("d4").root, (0, 0))
    runs = list_runs(tmp_path, "cars")
    assert [run.id for run in runs] == ["a1", "f0", "b7", "d4"]
    assert [find_run(found, name).id for name in ("last", "previous")] == ["a1", "f0"]
    assert [summary.run_id for summary in read_earlier(runs[0])] == ["b7", "f0"]
    assert read_earlier(runs[3]) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2026-01-06", rf"2 runs of cars begin with this; .*{IDS[2]}, {IDS[1]}"),
        ("../cars", r"is not the folder of a run, as it has no summary\.json"),
    ],
)
def test_unknown_run_is_refused(layout: Layout, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_run(layout, name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is damaged, or a later release wrote it"),
        (None, "does not exist"),
    ],
)
def test_damaged_summary_is_described(layout: Layout, content: bytes | None, message: str) -> None:
    path = layout.run(IDS[2]).summary
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    run: StoredRun = list_runs(layout.output, "cars")[0]
    with pytest.raises(DataError, match=message) as caught:
        run.read()
    assert str(path) in str(caught.value)
