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
from tests.support.small_pipeline import COMPILED, DONE, LOGS, NOT_BLESSED, UNUSABLE, load, report
from trainer_module.errors import ConfigError, InternalError

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


def test_a_run_that_pushes(server: KfpServer, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("names", [{"v1_pod_names": True}, {"with_retries": False}])
def test_other_names_of_pods(server: KfpServer, tmp_path: Path, names: dict[str, bool]) -> None:
    code, lines = follow(server, tmp_path, Play(FRAMES, LOGS, **names))
    assert code == 0
    assert "  Trainer           ran         4.2 s  12 epochs, best 9" in lines


def test_a_model_that_is_not_blessed(server: KfpServer, tmp_path: Path) -> None:
    code, lines = follow(server, tmp_path, Play(FRAMES, {**LOGS, "conclude": NOT_BLESSED}))
    assert code == 3
    assert lines[-2] == "not blessed, not pushed: accuracy is 0.5"


def test_data_that_is_unusable(server: KfpServer, tmp_path: Path) -> None:
    said = report("Begin", State.FAILED, "data.csv is empty")
    frame = Frame("FAILED", {"begin": "FAILED", "conclude": "SUCCEEDED"})
    code, lines = follow(server, tmp_path, Play([frame], {"begin": said, "conclude": UNUSABLE}))
    assert code == 2
    assert lines[0] == "  Begin             failed      4.2 s  data.csv is empty"
    assert lines[-2] == "Begin failed: data.csv is empty"


def test_a_step_that_fails_and_says_why(server: KfpServer, tmp_path: Path) -> None:
    said = report("Trainer", State.FAILED, "ValueError: [no] such loss")
    code, lines = follow(server, tmp_path, failing({"trainer": said}))
    assert code == 1
    assert "  Trainer           failed      4.2 s  ValueError: [no] such loss" in lines


@pytest.mark.parametrize(
    ("log", "trainer", "why"),
    [
        ("Loading\nKilled\n", "trainer", "the step wrote no report; its last line: Killed"),
        ("", "trainer", "the step was killed"),
        (report("Trainer"), "trainer", "the step wrote no report; its last line: chatter"),
        ("", "driver:trainer", "the step could not be started"),
    ],
    ids=["last words", "none", "a report of an attempt before", "no pod"],
)
def test_a_step_that_fails_without_a_report(
    server: KfpServer, tmp_path: Path, log: str, trainer: str, why: str
) -> None:
    code, lines = follow(server, tmp_path, failing({"trainer": log}, trainer))
    assert code == 1
    [line] = [line for line in lines if line.startswith("  Trainer")]
    assert line.startswith(f"  Trainer           failed     30.0 s  {why}")


def test_logs_that_cannot_be_read(server: KfpServer, tmp_path: Path) -> None:
    code, lines = follow(server, tmp_path, Play(FRAMES, {}))
    assert code == 1
    assert lines[0] == "  Begin             ran        30.0 s"
    assert lines[-3].startswith("the run succeeded; its summary cannot be read: the log of digits-")
    assert "Failed to read logs" in lines[-3]
    assert lines[-2] == "the run may have pushed a model"
    code, lines = follow(server, tmp_path, failing({}))
    assert code == 1
    assert lines[-2].startswith("the run failed; its summary cannot be read")


def test_a_run_that_somebody_terminates(server: KfpServer, tmp_path: Path) -> None:
    frame = Frame("CANCELED", {"begin": "SUCCEEDED", "resolver": "CANCELED"})
    code, lines = follow(server, tmp_path, Play([frame], LOGS))
    assert code == 1
    assert lines[1] == "  Resolver          failed     30.0 s  the step was terminated"
    assert lines[-2] == "the run was terminated"


def test_kubeflow_is_away_for_a_while(server: KfpServer, tmp_path: Path) -> None:
    gone = Answer(0, drops=True)
    server.trouble("GET /runs/", *[gone] * 6, Answer(503), Answer(502, "<html>", "text/html"))
    server.trouble("/log$", Answer(503))
    code, lines = follow(server, tmp_path, Play(FRAMES, LOGS))
    assert code == 0
    assert lines[0] == "  Begin             ran         4.2 s  no spans"
    assert not server.troubles


def test_what_is_not_passing_is_not_waited_for(server: KfpServer, tmp_path: Path) -> None:
    server.trouble("GET /runs/", Answer(403, '{"message": "not yours"}'))
    with pytest.raises(ConfigError, match=r"you may not read the run .* \(403\): not yours"):
        follow(server, tmp_path, Play(FRAMES, LOGS))


def test_a_run_that_takes_too_long(server: KfpServer, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="the run has not ended within 0 s"):
        follow(server, tmp_path, Play(FRAMES[:2], LOGS), Polling(interval=0.01, timeout=0.1))
