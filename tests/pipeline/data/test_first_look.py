"""Unusable local data is refused before TFX is imported."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.loading import load_config
from pipeline.data import first_look
from pipeline.data.first_look import check_local_data
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import RunSummary, Status
from pipeline.run_context import resolve_run
from pipeline.runs.run import check_new_data
from trainer_module.errors import ConfigError, DataError

ROOT = Path(__file__).parents[3]
ROWS = "size,side,label\n" + "".join(f"{n}.5,{'ns'[n % 2]},{n // 2 % 2}\n" for n in range(12))


def write_config(folder: Path, path: str, **changes: Any) -> Path:
    """A config below a folder, of data there."""
    data = {"format": "csv", "path": str(folder / path), **changes.pop("data", {})}
    file = folder / "seen.yaml"
    file.write_text(yaml.safe_dump({"name": "seen", "data": data, "task": "binary", **changes}))
    return file


def look(folder: Path, path: str = "a.csv", **changes: Any) -> None:
    """Looks at data that can be used."""
    config = load_config(write_config(folder, path, **changes))
    layout = Layout.of(config.name, config.push, folder / "output")
    context = resolve_run(config, layout)
    check_local_data(context.reading, config.all_named_columns, context.data[-1])


def refused(folder: Path, path: str = "a.csv", **changes: Any) -> str:
    """The message about unusable data."""
    with pytest.raises(DataError) as caught:
        look(folder, path, **changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"features": {"sizes": {"type": "numeric"}}}, "features.sizes"),
        ({"evaluate": {"slices": ["sizes"]}}, "evaluate.slices.0"),
        ({"data": {"split_by": "sizes"}}, "data.split_by"),
        ({"data": {"order_by": "sizes"}}, "data.order_by"),
        ({"drift": {"columns": {"sizes": {"jensen_shannon": 0.1}}}}, "drift.columns.sizes"),
    ],
)
def test_missing_column_is_refused_at_its_key(
    tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    (tmp_path / "a.csv").write_text(ROWS)
    if "drift" in changes:
        (tmp_path / "1").mkdir()
        (tmp_path / "a.csv").rename(tmp_path / "1" / "a.csv")
        os.utime(tmp_path / "1" / "a.csv", (1.7e9, 1.7e9))
    path = "{SPAN}/a.csv" if "drift" in changes else "a.csv"
    shown = f"{key}: the data has no column `sizes`"
    assert refused(tmp_path, path, **changes).startswith(shown)
    # What was there and is gone is judged by ExampleValidator.
    schema = tmp_path / "output" / "seen" / "schema.pbtxt"
    schema.parent.mkdir(parents=True, exist_ok=True)
    schema.write_text('feature { name: "sizes" type: FLOAT }')
    look(tmp_path, path, **changes)


def test_unreadable_order_is_refused_with_its_row(tmp_path: Path) -> None:
    days = [f"0{1 + n % 9}.01.2021" if n == 7 else f"2021-01-0{1 + n % 9}" for n in range(12)]
    rows = "".join(f"{day},{n}.5,{n % 2}\n" for n, day in enumerate(days))
    (tmp_path / "a.csv").write_text(f"day,size,label\n{rows}")
    shown = refused(tmp_path, data={"order_by": "day"})
    assert shown.startswith(f"Column 'day' is '08.01.2021' in row 9 of {tmp_path}/a.csv, but data.")
    assert "order_by needs numbers, or dates and times such as 2026-01-31" in shown


def test_all_files_are_looked_at(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(ROWS.replace(",", ";"))
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(ROWS.replace(",", ";").encode("utf-16")))
    look(tmp_path, "*.csv*")
    (tmp_path / "b.csv").write_text(ROWS + "1,2\n")
    assert f"Row 14 of {tmp_path}/b.csv has 2 columns" in refused(tmp_path, "*.csv*")


def test_large_data_is_left_to_example_gen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text(ROWS + "1,2\n")
    monkeypatch.setattr(first_look, "MAX_BYTES", len(ROWS))
    look(tmp_path)


@pytest.mark.slow
def test_refused_data_is_recorded_without_tensorflow(tmp_path: Path) -> None:
    lines = [f"{n / 7:.3f};{n % 2}" for n in range(20_000)]
    (tmp_path / "a.csv").write_text("\n".join(["size;label", *lines, "1;2"]))
    command = ["run", "--config", str(write_config(tmp_path, "a.csv"))]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(ROOT / "local_runner.py"), *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "ExampleGen failed: Label 'label' has 3 classes (0, 1, 2)" in done.stdout
    assert "summary.json" in done.stdout
    for name in ("tensorflow", "tfx", "apache_beam"):
        assert f" {name}\n" not in done.stderr
    (summary,) = (tmp_path / "output" / "seen" / "runs").glob("*/summary.json")
    found = yaml.safe_load(summary.read_text())
    assert (found["status"], found["error"]["component"]) == ("unusable", "ExampleGen")
    history = subprocess.run(
        [sys.executable, str(ROOT / "local_runner.py"), "history", *command[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "Label 'label' has 3 classes" in history.stdout


def test_files_that_a_run_has_read_are_not_looked_at_again(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(ROWS)
    config = load_config(write_config(tmp_path, "a.csv"))
    layout = Layout.of(config.name, config.push, tmp_path / "output")
    layout.root.mkdir(parents=True)
    context = resolve_run(config, layout)
    event_log = EventLog(layout.event_log)
    events = RunEvents(event_log, config, "run 1", list(context.data), "by hand")
    check_new_data(context)
    # As large and as old as before, so that nothing tells that it is another.
    time = file.stat().st_mtime_ns
    file.write_text(ROWS.replace("label", "lable"))
    os.utime(file, ns=(time, time))
    with pytest.raises(DataError, match="no label column 'label'"):
        check_new_data(context)
    summary = RunSummary(run_id="run 1", pipeline="seen", started="", strategy="default")
    summary.status = Status.VALIDATED
    events.record_end(summary, None)
    check_new_data(resolve_run(config, layout))
    other = load_config(write_config(tmp_path, "a.csv", task="multiclass"))
    with pytest.raises(DataError, match="no label column 'label'"):
        check_new_data(resolve_run(other, layout))
    os.utime(file)
    with pytest.raises(DataError, match="no label column 'label'"):
        check_new_data(resolve_run(config, layout))


def test_folder_of_pictures_beside_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "photos").mkdir(parents=True)
    (tmp_path / "data" / "a.csv").write_text("photo,label\na.png,1\n")
    photo = {"type": "image", "from": "path", "height": 8, "width": 8, "folder": "photos"}
    config = write_config(tmp_path, "data/a.csv", features={"photo": photo})
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    there = tmp_path / "data" / "photos"
    assert f"found 'photos'; there is no such folder; did you mean '{there}'?" in str(caught.value)
