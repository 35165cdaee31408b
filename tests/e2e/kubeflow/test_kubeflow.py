"""Digits as Kubeflow Pipelines runs them, container by container, on a real MariaDB.

A search and variants are steps of the first run, of which two containers are lost.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.pusher.variants import read_manifest
from components.pusher.versions import CARD_JSON
from tests.support.kubeflow_cluster import ROOT, Cluster, Run, kill_once, states, summary
from tests.support.mariadb_server import PASSWORD, mariadb
from tests.support.project import SMALL

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    volume = tmp_path_factory.mktemp("digits") / "volume"
    volume.mkdir()
    with mariadb() as server:
        server.administer("CREATE DATABASE meta")
        yield Cluster(volume, server, "meta")


DIGITS = (ROOT / "configs" / "digits.yaml", SMALL, "evaluate.thresholds={accuracy: {min: 0.1}}")
STEPS = (
    "tune={trials: 4, space: {train.batch_size: {choice: [80, 96]}}}",
    "optimize={variants: [float], required: true}",
    "train.epochs=3",
)


@pytest.fixture(scope="module")
def first(digits: Cluster) -> Run:
    """Digits for two epochs; its Tuner is killed in a trial, and its Trainer in the second epoch.

    The first step starts a Python of its own.
    """
    killings = [
        kill_once(digits, "tuner", "trial 1 "),
        kill_once(digits, "trainer", "epoch 2 of 2"),
    ]

    def on_start(*started: Any) -> None:
        for killing in killings:
            killing(*started)

    compiled = digits.compile(*DIGITS, *STEPS)
    return digits.executor(compiled, on_start, cold=("begin",)).run({"epochs": 2})


def test_a_run_reaches_pusher_with_its_own_parameters(digits: Cluster, first: Run) -> None:
    assert first.state == "SUCCEEDED", first.report()
    told = summary(first)
    assert told.status == "pushed"
    assert told.run_id == first.run_id
    assert set(states(first).values()) == {"ran"}
    assert told.training is not None
    assert told.training["epochs"] == 2
    assert told.pushed is not None
    assert Path(told.pushed).is_relative_to(digits.volume / "output/digits/serving/digits")
    assert (Path(told.pushed) / "saved_model.pb").exists()
    card = json.loads((Path(told.pushed) / CARD_JSON).read_text())
    assert card["model_details"]["version"]["name"] == first.run_id
    rows = {data["name"]: data["description"] for data in card["model_parameters"]["data"]}
    assert rows["eval"].startswith(f"{told.examples['eval']} rows")
    measured = [metric["type"] for metric in card["quantitative_analysis"]["performance_metrics"]]
    assert measured == list(told.metrics)


def test_a_step_that_is_killed_goes_on_in_its_second_attempt(digits: Cluster, first: Run) -> None:
    trainer = first.tasks["trainer"]
    assert [one.exit_code for one in trainer.attempts] == [-signal.SIGKILL, 0], first.report()
    told = summary(first)
    assert told.training is not None
    assert told.training["resumed_at_step"] > 0
    assert digits.count("Trainer") == 1, "the second attempt goes on with the same execution"


def test_a_search_that_is_killed_goes_on_and_the_trainer_takes_what_it_finds(first: Run) -> None:
    assert [one.exit_code for one in first.tasks["tuner"].attempts] == [-signal.SIGKILL, 0]
    assert "resumes after " in first.tasks["tuner"].log
    told = summary(first)
    assert told.training is not None
    assert sorted(trial["number"] for trial in told.tuning["trials"]) == [0, 1, 2, 3]
    assert told.training["global_batch_size"] == told.tuning["values"]["train.batch_size"]


def test_variants_are_pushed_with_the_model(first: Run) -> None:
    told = summary(first)
    (variant,) = told.variants["variants"]
    assert variant["accepted"]
    assert read_manifest(Path(str(told.pushed))).keys() == {"float"}


def test_the_ui_shows_data_metrics_model_and_report(digits: Cluster, first: Run) -> None:
    told = summary(first)
    shown = {name: task.outputs for name, task in first.tasks.items() if task.outputs}
    assert {name: set(outputs) for name, outputs in shown.items()} == {
        "examplegen": {"examples"},
        "evaluator": {"classification", "metrics"},
        "pusher": {"model"},
        "conclude": {"classification", "metrics", "report"},
    }
    rows = {f"rows_{split}": count for split, count in told.examples.items()}
    data = shown["examplegen"]["examples"].metadata
    assert rows.items() <= data.items()
    assert Path(data["uri"]).is_relative_to(digits.volume)
    expected = {name: metric.value for name, metric in told.metrics.items()}
    for step in ("evaluator", "conclude"):
        assert shown[step]["metrics"].metadata == {**expected, "blessed": 1}
        matrix = shown[step]["classification"].metadata["confusionMatrix"]
        assert len(matrix["rows"]) == len(matrix["annotationSpecs"]) == 10
    assert shown["pusher"]["model"].metadata == {"pushed": True, "served": told.pushed}
    report = Path(shown["conclude"]["report"].uri).read_text()
    assert report.startswith("<!doctype html>")
    assert told.run_id in report


def test_no_log_holds_the_password(digits: Cluster, first: Run) -> None:
    logs = [*digits.pods.rglob("*.log"), *(digits.volume / "output/digits/runs").rglob("*")]
    texts = [log.read_text(errors="replace") for log in logs if log.is_file()]
    assert len(texts) > len(first.tasks)
    assert not [text for text in texts if PASSWORD in text]


def test_of_two_runs_at_once_the_older_comes_too_late(digits: Cluster, first: Run) -> None:
    """One compares its model with the one in service, and pushes it; an older one does not."""
    # Whichever model is better by chance, both are blessed.
    lenient = "evaluate={ties: newest, thresholds: {accuracy: {min: 0.1, tolerance: 1.0}}}"
    compiled = digits.compile(*DIGITS[:-1], lenient, "certificate=false")
    begun, pushed = threading.Event(), threading.Event()

    def hold_up(task: str, attempt: int, process: subprocess.Popen[bytes]) -> None:
        del attempt, process
        if task == "examplegen":
            begun.set()
        if task == "evaluator":
            assert pushed.wait(300)

    with ThreadPoolExecutor() as threads:
        running = threads.submit(digits.executor(compiled, hold_up).run, {"epochs": 4})
        assert begun.wait(300)
        other = digits.executor(compiled).run({"epochs": 3})
        pushed.set()
        older = running.result()
    assert other.state == "SUCCEEDED", other.report()
    assert older.state == "SUCCEEDED", older.report()
    assert summary(other).status == "pushed"
    late, served = summary(older), Path(str(summary(other).pushed))
    assert (late.status, late.pushed, states(older)["Pusher"]) == ("superseded", None, "skipped")
    assert late.blessed
    assert late.waiting is not None
    assert late.waiting.reason.startswith(f"version {served.name} is in service, and its run")
    assert max(int(version.name) for version in served.parent.iterdir()) == int(served.name)
    found = states(other)
    assert {found[name] for name in ("ExampleGen", "SchemaGen", "Transform")} == {"cached"}
    assert found["Trainer"] == "ran"
    told = summary(other)
    assert told.metrics["accuracy"].in_service == pytest.approx(
        summary(first).metrics["accuracy"].value
    )
