"""`kubeflow_runner.py submit`: what is shown and returned, and once as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import kubeflow as commands
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.cluster_layout import settings_of
from tests.support import warm
from tests.support.kfp_server import Answer, KfpServer
from tests.support.played_runs import Frame, Play
from tests.support.small_pipeline import COMPILED, DONE, LOGS, load
from trainer_module.errors import InternalError

ROOT = Path(__file__).parents[3]
TOKEN = "a-secret-token"  # noqa: S105
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


def test_losing_sight_of_a_run(server: KfpServer, tmp_path: Path) -> None:
    server.play = Play(PLAY, LOGS)
    server.trouble("GET /runs/", *[Answer(503, "away", "text/plain")] * 99)
    with pytest.raises(InternalError) as found:
        submit(server, tmp_path, {}, Polling(interval=0.05, retry_seconds=0.2))
    [run] = server.runs
    assert "now (503 Service Unavailable): away\n" in str(found.value)
    assert str(found.value).endswith(
        f"\nthe run continues; to see its state: {HOW.format(f'status {run}')}"
    )


SUBMIT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.small_pipeline import COMPILED, load
from pipeline.cli import kubeflow as commands
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.cluster_layout import settings_of
config = load(Path.cwd(), sys.argv[2])
kubeflow = Kubeflow(settings_of(config))
sys.exit(commands.run_and_follow(kubeflow, config, COMPILED, {}, Polling(interval=0.05)))
"""


def test_ctrl_c_leaves_the_run_alone(server: KfpServer, tmp_path: Path) -> None:
    server.play = Play(PLAY[:1], LOGS)
    command = [sys.executable, "-c", SUBMIT, str(ROOT), server.url]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    # It follows the run, several looks long.
    while sum("GET /runs/" in call for call in server.calls) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    [run] = server.runs
    assert said.splitlines()[-2:] == [
        f"the run continues; to see its state: {HOW.format(f'status {run}')}",
        f"to stop the run: {HOW.format(f'terminate {run}')}",
    ]
    assert server.runs[run]["state"] == "RUNNING"


@pytest.mark.slow
def test_digits_is_compiled_submitted_and_followed(tmp_path: Path) -> None:
    tasks = {"begin": "SUCCEEDED", "trainer": "SUCCEEDED", "conclude": "SUCCEEDED"}
    with KfpServer(token=TOKEN, play=Play([Frame("SUCCEEDED", tasks)], LOGS)) as server:
        url = server.url
        done = scopeline(tmp_path, url, "submit", "--parameter", "epochs=3")
    assert done.returncode == 0, done.stderr
    [run] = server.runs
    lines = done.stdout.splitlines()
    [version] = server.uploads
    assert lines[0] == f"digits, run {run} on {url}, {version} (uploaded)"
    assert "  Trainer           ran         4.2 s  12 epochs, best 9" in lines
    assert "blessed: every threshold is met" in lines
    # Nothing of what TensorFlow says as it is imported; a container engine may be missing here.
    assert all(line.startswith("warning: the") for line in done.stderr.splitlines())
    assert server.runs[run]["runtime_config"] == {"parameters": {"epochs": 3}}
    specification, _ = yaml.safe_load_all(server.uploads[version])
    assert set(tasks) <= set(json.dumps(specification).replace('"', " ").split())
    assert TOKEN not in done.stdout + done.stderr + server.uploads[version]
    assert all(request.headers["authorization"] == f"Bearer {TOKEN}" for request in server.requests)

    (tmp_path / "digits.yaml").write_text("an earlier one")
    done = scopeline(tmp_path, url, "compile", "--output", "digits.yaml", run=warm.run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"written to digits.yaml: {version}, ")
    assert [file.name for file in tmp_path.iterdir()] == ["digits.yaml"]
    assert (tmp_path / "digits.yaml").read_text() == server.uploads[version]


def scopeline(
    folder: Path, url: str, *arguments: str, run: Callable[..., Any] = subprocess.run
) -> subprocess.CompletedProcess[str]:
    """Runs a command, in a Python of its own if nothing else is said."""
    overrides = [
        f"kubeflow.endpoint={url}",
        "kubeflow.image=localhost:9/scopeline:0.1.0",
        "kubeflow.volume={claim: scopeline}",
        "metadata=mysql://scopeline@mysql/digits",
    ]
    options = [word for override in overrides for word in ("--set", override)]
    config = ["--config", str(ROOT / "configs" / "digits.yaml")]
    return run(
        [sys.executable, str(ROOT / "kubeflow_runner.py"), *arguments, *config, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere", "SCOPELINE_KFP_TOKEN": TOKEN},
    )
