"""Runs on windows of spans: what is read again, what is left out, and what stops."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.project import Project, write_span

pytestmark = pytest.mark.slow

NAME = "spans"
CONFIG = """
name: spans
data: {format: csv, path: "days/{SPAN}/*.csv"}
task: binary
model: {kind: mlp, hidden_units: [8]}
train: {epochs: 2}
evaluate: {metrics: [accuracy]}
schedule:
  on_new_data: true
  window: {last: 3}
  missing_span: skip
  warm_start: true
drift:
  columns: {price plan: {infinity_norm: 0.3}}
  on_drift: fail
certificate: {enabled: false}
"""


class Runs:
    """The runs of a project, each with what it output."""

    def __init__(self, project: Project) -> None:
        self.project = project
        (project.folder / "spans.yaml").write_text(CONFIG)

    def run(self, *arguments: str) -> tuple[int, str, dict[str, Any]]:
        """The exit code, what was output, and the summary."""
        done = self.project.scopeline("run", "--config", "spans.yaml", *arguments)
        return done.returncode, done.stdout + done.stderr, self.project.summary(NAME)

    def history(self, kind: str) -> list[dict[str, Any]]:
        """The ledger's events of a kind."""
        done = self.project.scopeline("history", "--config", "spans.yaml", "--json", "--kind", kind)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))


@pytest.fixture(scope="module")
def runs(project: Project) -> Runs:
    """Spans 1 to 3, of which the second holds no row, have been trained on."""
    for number in (1, 3):
        write_span(project.folder, number)
    write_span(project.folder, 2, rows=0)
    runs = Runs(project)
    code, output, _ = runs.run()
    assert code == 0, output
    return runs


def test_a_span_without_rows_is_left_out(runs: Runs) -> None:
    (event,) = runs.history("empty span")
    assert event["message"].startswith("span 2 has no rows")
    (started,) = runs.history("started")
    assert started["details"]["window"] == [1, 3]
    assert runs.project.summary(NAME)["training"]["examples"]["train"] < 2 * 200


def test_columns_of_the_window_are_beside_those_of_the_newest_span(runs: Runs) -> None:
    details = runs.project.summary(NAME)["details"]
    assert details["notes"] == []
    age = next(column for column in details["columns"] if column["name"] == "age")
    counted = {split: statistics["rows"] for split, statistics in age["splits"].items()}
    examples = runs.project.summary(NAME)["examples"]
    assert counted["last span"] == examples["train"]
    assert counted["eval"] == examples["eval"]
    assert counted["last span"] < counted["train"] < 2 * 200
    assert 0 < age["drift"] < 0.2


def test_a_window_without_spans_is_refused(runs: Runs) -> None:
    done = runs.project.scopeline("run", "--config", "spans.yaml", "--through", "7")
    assert done.returncode == 2
    assert "there is no span 7 to train on" in done.stderr
    done = runs.project.scopeline("run", "--config", "spans.yaml", "--through", "May")
    assert done.returncode == 2
    assert "--through May: each span at data.path is a number" in done.stderr


def test_drift_stops_the_run_before_anything_is_learnt(runs: Runs) -> None:
    write_span(runs.project.folder, 4, gold=1.0)
    code, output, summary = runs.run("--validate-only")
    assert code == 2
    assert "compared with span 3: 'basic' from 5" in output
    assert "spans accept 4 --reason TEXT" in output
    assert summary["status"] == "unusable"
    assert [c["name"] for c in summary["components"]][-1] == "ExampleValidator"


def test_a_span_that_drifted_stays_out_and_the_next_is_no_alarm(runs: Runs) -> None:
    write_span(runs.project.folder, 5)
    write_span(runs.project.folder, 6, rows=0)
    code, output, summary = runs.run()
    assert code in (0, 3), output
    assert "span 6 is empty; it is not read yet" in output
    assert "span 4 is left out" in output
    assert summary["drift"] == []
    assert runs.history("finished")[-1]["details"]["window"] == [3, 5]
    assert runs.history("empty span")[-1]["details"]["span"] == 6


def test_spans_are_listed_and_one_that_drifted_is_accepted(runs: Runs) -> None:
    options = ("--config", "spans.yaml")
    done = runs.project.scopeline("spans", *options, "--json")
    assert done.returncode == 0, done.stderr
    listed = {one["span"]: one for one in json.loads(done.stdout)}
    states = {name: one["state"] for name, one in listed.items()}
    trained, out = "trained on", "left out"
    assert states == {
        "1": trained,
        "2": "empty",
        "3": trained,
        "4": out,
        "5": trained,
        "6": "empty",
    }
    assert (listed["5"]["rows"], listed["6"]["rows"]) == (200, None)
    assert "price plan: expected the shares" in listed["4"]["why"]
    done = runs.project.scopeline("spans", "accept", "4", *options, "--reason", "no more basic")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("span 4 is accepted: the next run whose window contains the span")
    done = runs.project.scopeline("spans", *options)
    assert re.search(r"^4 +accepted +\S+ \S+ +no more basic *$", done.stdout, re.M), done.stdout
    done = runs.project.scopeline("spans", "accept", "3", *options, "--reason", "x")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
