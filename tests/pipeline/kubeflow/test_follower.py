"""A run on Kubeflow, followed to its end on the screen of local runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.api.follower import Follower
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.records.summary import State
from pipeline.runs.console import RunConsole
from tests.support.kfp_server import Answer, KfpServer
from tests.support.played_runs import Frame, Play
from tests.support.small_pipeline import COMPILED, DONE, LOGS, UNUSABLE, load, report

QUICK = Polling(interval=0.01, retry_seconds=2)
FRAMES = [
    Frame("PENDING"),
    Frame("RUNNING", {"begin": "RUNNING"}),
    Frame("RUNNING", {"begin": "SUCCEEDED", "resolver": "RUNNING", "trainer": "RUNNING"}),
    Frame("RUNNING", {"begin": "SUCCEEDED", "resolver": "SUCCEEDED", "trainer": "RUNNING"}),
    Frame("RUNNING", {**DONE, "conclude": "RUNNING"}),
    Frame("SUCCEEDED", {**DONE, "conclude": "RUNNING"}),
    Frame("SUCCEEDED", DONE),
]


def follow(
    server: KfpServer, folder: Path, play: Play, polling: Polling = QUICK
) -> tuple[int, list[str]]:
    """The exit code of a run, and what was shown."""
    server.play = play
    settings = settings_of(load(folder, server.url))
    kubeflow = Kubeflow(settings)
    run = kubeflow.start_run(kubeflow.ensure_version(COMPILED), {})
    stream = io.StringIO()
    follower = Follower(kubeflow, COMPILED, run, RunConsole(stream), polling)
    code = follower.show_outcome(follower.follow(), ["and a hint"])
    return code, stream.getvalue().splitlines()


def failing(logs: dict[str, str], trainer: str = "trainer") -> Play:
    steps = {"begin": "SUCCEEDED", "resolver": "SUCCEEDED", trainer: "FAILED"}
    frame = Frame("FAILED", {**steps, "conclude": "SUCCEEDED"})
    return Play([Frame("RUNNING", steps), frame], logs)


def test_run_that_pushes_exits_with_0(server: KfpServer, tmp_path: Path) -> None:
    code, lines = follow(server, tmp_path, Play(FRAMES, LOGS))
    assert code == 0
    assert [" ".join(line.split()) for line in lines if line] == [
        "Begin ran 4.2 s no spans",
        "Trainer ran 4.2 s 12 epochs, best 9",
        "metric value in service needs",
        "accuracy 0.9700 - >= 0.95: met",
        "blessed: every threshold is met",
        "pushed to /mnt/scopeline/output/digits/serving/digits/1",
        "and a hint",
    ]
    logs = {call for call in server.calls if call.endswith("/log")}
    assert len(logs) == 4, "each log is read at the first name that is tried"


def test_unusable_data_exits_with_2(server: KfpServer, tmp_path: Path) -> None:
    shown = report("Begin", State.FAILED, "data.csv is empty")
    frame = Frame("FAILED", {"begin": "FAILED", "conclude": "SUCCEEDED"})
    code, lines = follow(server, tmp_path, Play([frame], {"begin": shown, "conclude": UNUSABLE}))
    assert code == 2
    assert lines[0] == "  Begin             failed      4.2 s  data.csv is empty"
    assert lines[-2] == "Begin failed: data.csv is empty"


def test_failed_step_shows_its_error(server: KfpServer, tmp_path: Path) -> None:
    shown = report("Trainer", State.FAILED, "ValueError: [no] such loss")
    code, lines = follow(server, tmp_path, failing({"trainer": shown}))
    assert code == 1
    assert "  Trainer           failed      4.2 s  ValueError: [no] such loss" in lines


@pytest.mark.parametrize(
    ("log", "trainer", "why"),
    [
        ("Loading\nKilled\n", "trainer", "the step wrote no report; its last line: Killed"),
        ("", "trainer", "the step was killed"),
    ],
    ids=[
        "last words",
        "none",
    ],
)
def test_a_step_that_fails_without_a_report(
    server: KfpServer, tmp_path: Path, log: str, trainer: str, why: str
) -> None:
    code, lines = follow(server, tmp_path, failing({"trainer": log}, trainer))
    assert code == 1
    [line] = [line for line in lines if line.startswith("  Trainer")]
    assert line.startswith(f"  Trainer           failed     30.0 s  {why}")


def test_terminated_run_exits_with_1(server: KfpServer, tmp_path: Path) -> None:
    frame = Frame("CANCELED", {"begin": "SUCCEEDED", "resolver": "CANCELED"})
    code, lines = follow(server, tmp_path, Play([frame], LOGS))
    assert code == 1
    assert lines[1] == "  Resolver          failed     30.0 s  the step was terminated"
    assert lines[-2] == "the run was terminated"


def test_unavailable_api_is_retried(server: KfpServer, tmp_path: Path) -> None:
    gone = Answer(0, drops=True)
    server.trouble("GET /runs/", *[gone] * 6, Answer(503), Answer(502, "<html>", "text/html"))
    server.trouble("/log$", Answer(503))
    code, lines = follow(server, tmp_path, Play(FRAMES, LOGS))
    assert code == 0
    assert lines[0] == "  Begin             ran         4.2 s  no spans"
    assert not server.troubles
