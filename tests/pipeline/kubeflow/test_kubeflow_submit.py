"""`kubeflow_runner.py submit`: what is shown and returned, and once as a user calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli import kubeflow as commands
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.cluster_layout import settings_of
from tests.support.kfp_server import KfpServer
from tests.support.played_runs import Frame, Play
from tests.support.small_pipeline import COMPILED, DONE, LOGS, load

ROOT = Path(__file__).parents[3]
HOW = "scopeline-kubeflow {} --config FILE"
QUICK = Polling(interval=0.01, retry_seconds=1)
PLAY = [
    Frame("RUNNING", {"begin": "SUCCEEDED", "trainer": "RUNNING"}),
    Frame("SUCCEEDED", DONE),
]


def submit(
    server: KfpServer, folder: Path, given: dict[str, int | str], pace: Polling | None = QUICK
) -> int:
    config = load(folder, server.url)
    kubeflow = Kubeflow(settings_of(config))
    return commands.run_and_follow(kubeflow, config, COMPILED, given, pace)


def test_submit_shows_the_run(
    server: KfpServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.play = Play(PLAY, LOGS)
    assert submit(server, tmp_path, {"epochs": 3}) == 0
    [run] = server.runs
    assert server.runs[run]["runtime_config"] == {"parameters": {"epochs": 3}}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"digits, run {run} on {server.url}, {COMPILED.version} (uploaded)"
    assert lines[1].split() == ["Begin", "ran", "4.2", "s", "no", "spans"]
    logs = f"to see all logs: {HOW.format(f'logs {run}')}"
    assert [line for line in lines if line.startswith("to see all logs")] == [logs]


def test_submit_without_waiting(
    server: KfpServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(server, tmp_path, {}, None) == 0
    assert submit(server, tmp_path, {}, None) == 0
    first, second = server.runs
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"the run continues; to see its state: {HOW.format(f'status {first}')}"
    assert lines[2].endswith(f"run {second} on {server.url}, {COMPILED.version} (uploaded before)")
    assert not any(call.startswith("GET /runs") for call in server.calls)
