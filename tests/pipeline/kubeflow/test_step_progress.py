"""How far a step has come: in its log, and on the screen of who follows the run."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.kubeflow import compiled
from pipeline.kubeflow.api import follower
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import PROGRESS_MARK, StepProgress, read_progress
from pipeline.runs.console import RunConsole
from tests.support.kfp_server import Answer, KfpServer
from tests.support.played_runs import Frame, Play
from tests.support.small_pipeline import COMPILED, DONE, LOGS, load
from trainer_module.runtime import PROGRESS_LOGGER, report_progress

EPOCHS = [
    StepProgress(message=f"epoch {i} of 3", done=i, total=3, detail=f"loss 0.{9 - i} [sic]")
    for i in range(1, 4)
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KfpServer]:
    monkeypatch.setattr("pipeline.runs.console.QUIET_SECONDS", 0)
    monkeypatch.setattr(follower, "_LOG_PAUSE_FACTOR", 0)
    with KfpServer() as server:
        yield server


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """A step's log, as `ProgressLines` writes it."""
    stream = io.StringIO()
    logger = logging.getLogger(PROGRESS_LOGGER)
    handler = compiled.ProgressLines(RunConsole(stream, verbose=True))
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def line(shown: StepProgress) -> str:
    return f"{PROGRESS_MARK}{shown.model_dump_json()}\n"


def follow(
    server: KfpServer, folder: Path, play: Play, stream: io.StringIO | None = None
) -> list[str]:
    """What was shown of a run besides its outcome."""
    server.play = play
    settings = settings_of(load(folder, server.url))
    kubeflow = Kubeflow(settings)
    run = kubeflow.start_run(kubeflow.ensure_version(COMPILED), {})
    stream = stream or io.StringIO()
    follower.Follower(
        kubeflow, COMPILED, run, RunConsole(stream), Polling(interval=0.01, retry_seconds=2)
    ).follow()
    return [" ".join(shown.split()) for shown in stream.getvalue().splitlines()]


class Training(Play):
    """The Trainer has come one epoch further every fourth look."""

    def log(self, pod: str) -> str | None:
        log = super().log(pod)
        if log != "training":
            return log
        shown = "".join(f"chatter\n{line(epoch)}" for epoch in EPOCHS[: self.looks // 4])
        return f"{shown}more chatter\n{PROGRESS_MARK}{{"


def training(frame: Frame, **logs: str) -> Play:
    return Training([frame] * 15 + [Frame("SUCCEEDED", DONE)], {**LOGS, **logs})


def test_the_last_progress_of_a_log() -> None:
    assert read_progress(line(EPOCHS[0]) + "chatter " + line(EPOCHS[1])) == EPOCHS[1]
    assert read_progress("epoch 1 of 3\n") is None


def test_progress_is_logged_at_intervals_and_at_the_end(log: io.StringIO) -> None:
    for epoch in range(1, 10):
        report_progress(epoch, 9, "epoch", "loss 0.5 [sic]")
    first, last = log.getvalue().splitlines()
    assert read_progress(first) == StepProgress(
        message="epoch 1 of 9", done=1, total=9, detail="loss 0.5 [sic]"
    )
    assert "epoch 9 of 9" in last


def test_progress_of_a_step_is_shown_once(server: KfpServer, tmp_path: Path) -> None:
    frame = Frame("RUNNING", {"begin": "SUCCEEDED", "trainer": "RUNNING"})
    assert follow(server, tmp_path, training(frame, trainer="training"))[:4] == [
        "Begin ran 4.2 s no spans",
        "Trainer epoch 1 of 3 loss 0.8 [sic]",
        "Trainer epoch 2 of 3 loss 0.7 [sic]",
        "Trainer epoch 3 of 3 loss 0.6 [sic]",
    ]


def test_unreadable_progress_does_not_delay_the_run(server: KfpServer, tmp_path: Path) -> None:
    frame = Frame("RUNNING", {"trainer": "RUNNING"})
    server.trouble("/log$", Answer(503), Answer(500), Answer(404))
    lines = follow(server, tmp_path, training(frame, trainer="training"))
    assert "Trainer epoch 3 of 3 loss 0.6 [sic]" in lines
    assert not server.troubles
