"""A table that nobody declared anything of, to a pushed model: the page about it, followed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.project import ROOT, Project, plain

pytestmark = pytest.mark.slow

TRIPS = ("--config", "trips.yaml", "--set", "train.epochs=2")
PAGE = ROOT / "docs" / "your-data.md"

MAKE_TRIPS = """\
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd

tfx = Path(importlib.util.find_spec("tfx").origin).parent
trips = pd.read_csv(tfx / "examples/chicago_taxi_pipeline/data/simple/data.csv").head(3000)
started = pd.to_datetime(trips.pop("trip_start_timestamp"), unit="s")
trips = trips.drop(columns=["trip_start_month", "trip_start_day", "trip_start_hour"])
trips["trip_id"] = [f"T{number:05}" for number in range(len(trips))]
trips["started"] = started.dt.strftime("%d/%m/%Y %H:%M")
trips["tip"] = np.where(trips.pop("tips") > 0.2 * trips["fare"], "good", "poor")
trips.to_csv("trips.csv", index=False)
"""
CONFIG = """\
name: trips
data:
  format: csv
  path: trips.csv
  label: tip
task: binary
"""


@pytest.fixture(scope="module")
def trips(project: Project) -> Project:
    """The folder with a table of trips and its config."""
    (project.folder / "trips.yaml").write_text(CONFIG)
    subprocess.run([sys.executable, "-c", MAKE_TRIPS], cwd=project.folder, check=True)
    return project


@pytest.fixture(scope="module")
def said_before(trips: Project) -> str:
    return plain(trips.scopeline("plan", *TRIPS).stdout)


@pytest.fixture(scope="module")
def screen(trips: Project, said_before: str) -> str:
    """What a run showed."""
    del said_before
    done = trips.scopeline("run", *TRIPS)
    assert done.returncode == 0, done.stdout + done.stderr
    return plain(done.stdout)


def columns_of(screen: str) -> list[str]:
    """The lines of a plan about columns."""
    lines = screen.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("columns"))
    return lines[begin:]


def test_a_plan_before_the_first_run_says_what_the_page_shows(said_before: str) -> None:
    shown = next(block for block in PAGE.read_text().split("```text\n") if block.startswith("$"))
    expected = shown.splitlines()[1:5]
    assert columns_of(said_before)[: len(expected)] == expected


def test_a_model_is_pushed_and_the_screen_says_what_it_does_not_see(
    trips: Project, screen: str
) -> None:
    summary = trips.summary("trips")
    assert (summary["status"], summary["blessed"]) == ("pushed", True)
    types = {name: column["settings"]["type"] for name, column in summary["columns"].items()}
    assert types["started"] == "date"
    assert {n for n, kind in types.items() if kind == "ignore"} == {
        "trip_id",
        "pickup_census_tract",
    }
    assert summary["columns"]["trip_id"]["reason"].endswith("as an identifier has")
    assert re.search(r"SchemaGen .* ignores pickup_census_tract, trip_id; 10 numeric, ", screen)


def test_ignored_columns_may_become_whatever_they_like(trips: Project, screen: str) -> None:
    del screen
    file = Path(trips.folder, "trips.csv")
    table = pd.read_csv(file)
    table["trip_id"] = "T1"
    table["pickup_census_tract"] = [f"{i % 9}.5" for i in range(len(table))]
    table.to_csv(file, index=False)
    done = trips.scopeline("run", *TRIPS, "--validate-only")
    assert done.returncode == 0, done.stdout
    assert trips.summary("trips")["anomalies"] == []
