"""Taxi trips in spans, submitted to Kubeflow Pipelines, which runs them here for real."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from components.example_gen.builtin import BUILTIN_DATA
from pipeline.kubeflow.compiled import read_progress, read_report
from tests.support.kubeflow_cluster import PASSWORD, Cluster, Run, detail, kubeflow_cluster, summary
from tests.support.live_kubeflow import LiveKubeflow

pytestmark = pytest.mark.slow

SPANS = """
name: trips
data: {format: csv, path: "days/{SPAN}/*.csv", label: big_tipper}
task: binary
model: {kind: wide_deep, hidden_units: [8]}
train: {epochs: 2, batch_size: 256}
evaluate: {metrics: [auc]}
schedule:
  on_new_data: true
  window: {last: 3}
  warm_start: true
drift:
  columns: {payment_type: {infinity_norm: 0.4}}
  on_drift: fail
certificate: {enabled: false}
"""
ROWS_A_DAY = 800
COLUMNS = ("fare", "payment_type", "trip_miles", "trip_start_hour", "big_tipper")


@dataclass(frozen=True)
class Submitted:
    """A run, and the output of the command that followed it."""

    code: int
    stdout: str
    stderr: str
    run: Run


class Trips:
    """Days of taxi trips on a volume, and the pipeline that is trained on them."""

    def __init__(self, cluster: Cluster, kubeflow: LiveKubeflow) -> None:
        self.cluster = cluster
        self.kubeflow = kubeflow
        self.submitted: list[Submitted] = []
        self.config = cluster.volume.parent / "trips.yaml"
        self.config.write_text(SPANS)
        source = BUILTIN_DATA["taxi"].locate(cluster.volume)
        with source.open(newline="") as file:
            self.rows = list(csv.DictReader(file))

    def write(self, day: int, **constant: str) -> None:
        """The trips of a day, which came an hour ago; some columns can have one value only."""
        path = self.cluster.volume / "days" / str(day) / "trips.csv"
        path.parent.mkdir(parents=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            for row in self.rows[(day - 1) * ROWS_A_DAY : day * ROWS_A_DAY]:
                writer.writerow(row | constant)
        an_hour_ago = path.stat().st_mtime - 3600
        os.utime(path, (an_hour_ago, an_hour_ago))

    def run(self) -> Run:
        return self.cluster.executor(self.cluster.compile(self.config)).run()

    def submit(self, *parameters: str) -> Submitted:
        """Submits it from the command line, which follows it to its end."""
        given = [word for parameter in parameters for word in ("--parameter", parameter)]
        done = self.kubeflow.scopeline("submit", self.config, *given)
        assert len(self.kubeflow.runs) > len(self.submitted), done.stdout + done.stderr
        run = self.kubeflow.outcome(list(self.kubeflow.runs)[-1])
        self.submitted.append(Submitted(done.returncode, done.stdout, done.stderr, run))
        return self.submitted[-1]


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trips]:
    with (
        kubeflow_cluster(tmp_path_factory.mktemp("trips")) as cluster,
        LiveKubeflow(cluster=cluster) as kubeflow,
    ):
        trips = Trips(cluster, kubeflow)
        for day in (1, 2, 3):
            trips.write(day)
        yield trips


@pytest.fixture(scope="module")
def two_days(trips: Trips) -> Submitted:
    return trips.submit("span=2")


def test_run_trains_on_the_window_up_to_its_span(two_days: Submitted) -> None:
    assert two_days.run.state == "SUCCEEDED", two_days.run.report()
    ended = summary(two_days.run)
    assert ended.window is not None
    assert ended.window.spans == ["1", "2"]
    assert ended.status == "pushed"


def test_submit_shows_the_steps_of_a_run(trips: Trips, two_days: Submitted) -> None:
    assert two_days.code == 0, two_days.stderr
    ended, lines = summary(two_days.run), two_days.stdout.splitlines()
    where = f"trips, run {two_days.run.run_id} on {trips.kubeflow.url}, "
    assert lines[0].startswith(where)
    begun = [task for task in two_days.run.tasks.values() if task.attempts]
    reports = [read_report(t.log) for t in sorted(begun, key=lambda task: task.ended)]
    seen = [line.split()[0] for line in lines if " ran " in line]
    assert set(seen) == {r.step for r in reports if r is not None and r.is_shown}
    assert seen[:2] == ["Begin", "ExampleGen"]
    assert seen[-1] == "Pusher"
    (auc,) = (line.split() for line in lines if line.split()[:1] == ["auc"])
    assert auc[1] == f"{ended.metrics['auc'].value:.4f}"
    assert f"pushed to {ended.pushed}" in lines
    assert all(line.startswith("warning: the") for line in two_days.stderr.splitlines())
    assert PASSWORD not in two_days.stdout + two_days.stderr


def test_status_and_logs_of_a_run(trips: Trips, two_days: Submitted) -> None:
    ran = [task for task in two_days.run.tasks.values() if task.attempts]
    shown = trips.kubeflow.scopeline("status", trips.config)
    assert shown.stdout.splitlines()[0].split(", ")[1] == f"run {two_days.run.run_id}: succeeded"
    rows = [line.split() for line in shown.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [
        [task.name, "succeeded"] for task in sorted(ran, key=lambda task: task.started)
    ]
    log = trips.kubeflow.scopeline(
        "logs", trips.config, two_days.run.run_id, "--step", "Trainer"
    ).stdout
    kept = two_days.run.tasks["trainer"].log
    progress = read_progress(kept)
    assert progress is not None
    assert (progress.done, progress.total) == (2, 2)
    marked = ("scopeline-report: ", "scopeline-progress: ")
    plain = [line for line in kept.splitlines(True) if not any(mark in line for mark in marked)]
    assert log == "".join(plain)
    assert "  Trainer           ran" in log


def test_next_window_is_a_warm_start(trips: Trips, two_days: Submitted) -> None:
    three_days = trips.run()
    assert three_days.state == "SUCCEEDED", three_days.report()
    ended = summary(three_days)
    assert ended.window is not None
    assert ended.window.spans == ["1", "2", "3"]
    assert ended.training is not None
    assert ended.training["warm_start"]
    assert trips.cluster.count("ArrowExampleGen") == 3, "each span is read once"


def test_failed_step_fails_the_run_with_its_message(trips: Trips, two_days: Submitted) -> None:
    trips.write(4, payment_type="Barter")
    submitted = trips.submit()
    failed = submitted.run
    assert failed.state == "FAILED"
    validator = failed.tasks["examplevalidator"]
    assert [one.exit_code for one in validator.attempts][-1] == 2, failed.report()
    assert "payment_type" in detail(validator)
    assert {failed.tasks[name].state for name in ("trainer", "evaluator", "pusher")} == {"SKIPPED"}
    ended = summary(failed)
    assert ended.error is not None
    assert ended.error.component == "ExampleValidator"
    assert "payment_type" in ended.error.message
    assert submitted.code == ended.status.exit_code, submitted.stderr
    lines = submitted.stdout.splitlines()
    (shown,) = (line for line in lines if line.startswith("  ExampleValidator  failed"))
    assert shown.endswith(detail(validator))
    assert f"ExampleValidator failed: {ended.error.message}" in submitted.stdout
