"""`kubeflow_runner.py` from the command line, as far as nothing is compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kubeflow_runner
from pipeline.cli import kubeflow as commands
from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.api.steps import LogReader
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import PROGRESS_MARK
from tests.support.kfp_server import Answer, KfpServer
from tests.support.played_runs import Frame, Play
from tests.support.small_pipeline import COMPILED, DONE, LOGS, load, report, write_config
from trainer_module.typed_words import typed_kubeflow_command

ROOT = Path(__file__).parents[3]
Shown = tuple[int, str, str]
Run = Callable[..., Shown]
QUICK = Polling(interval=0.01, retry_seconds=1)
PLAY = [
    Frame("RUNNING", {"begin": "SUCCEEDED", "trainer": "RUNNING"}),
    Frame("SUCCEEDED", DONE),
]


@pytest.fixture
def scopeline(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process: its exit code and output."""

    def run(*arguments: str) -> Shown:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["kubeflow_runner.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            kubeflow_runner.main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def config(server: KfpServer, tmp_path: Path) -> str:
    return str(write_config(tmp_path, server.url))


def begin(server: KfpServer, folder: Path, play: Play) -> str:
    """The id of a run that has been submitted."""
    server.play = play
    config = load(folder, server.url)
    kubeflow = Kubeflow(settings_of(config))
    assert commands.run_and_follow(kubeflow, config, COMPILED, {}, None) == 0
    return list(server.runs)[-1]


def test_status(server: KfpServer, tmp_path: Path, scopeline: Run, config: str) -> None:
    run = begin(server, tmp_path, Play(PLAY[1:], LOGS))
    code, out, _ = scopeline("status", run, "--config", config)
    assert code == 0
    assert out.splitlines()[0].endswith(f", run {run}: succeeded, created 2026-01-05 03:00:04 UTC")
    assert out.splitlines()[1:] == [
        "  begin     succeeded       30 s",
        "  resolver  succeeded       30 s",
        "  trainer   succeeded       30 s",
        "  conclude  succeeded       30 s",
    ]


def test_suggested_command_shows_no_secret() -> None:
    overrides = [
        "train.epochs=3",
        "notify.webhook.url=https://hooks.example.com/hush",
        "notify={webhook: {url: 'https://hooks.example.com/hush'}}",
        "kubeflow.environment.TOKEN=hush",
        "kubeflow.image=x:1",
    ]
    options = [word for override in overrides for word in ("--set", override)]
    CliRunner().invoke(kubeflow_runner.app, ["submit", "--config", "a b.yaml", *options])
    assert typed_kubeflow_command("status 1") == (
        "scopeline-kubeflow status 1 --config 'a b.yaml' --set train.epochs=3 "
        "--set notify.webhook.url=... --set notify=... --set kubeflow.environment.TOKEN=... "
        "--set kubeflow.image=x:1"
    )


def test_terminate(server: KfpServer, tmp_path: Path, scopeline: Run, config: str) -> None:
    run = begin(server, tmp_path, Play(PLAY[:1], LOGS))
    code, out, _ = scopeline("terminate", run, "--config", config)
    assert (code, server.changes[-1]) == (0, "POST /runs/ID:terminate")
    assert out.startswith(
        f"the run {run} is being terminated; the results of finished steps are kept"
    )
    code, _, err = scopeline("terminate", run, "--config", config)
    assert (code, err) == (2, f"the run {run} has ended already: canceled\n")


def test_logs(server: KfpServer, tmp_path: Path, scopeline: Run, config: str) -> None:
    for_programs = report("Begin").removeprefix("chatter\n")
    logs = {"begin": f"one\ntw{for_programs}o\n", "trainer": "three\n"}
    run = begin(server, tmp_path, Play(PLAY[1:], logs))
    code, out, _ = scopeline("logs", run, "--config", config)
    assert code == 0
    lines = out.splitlines()
    assert lines[:4] == ["== begin", "one", "two", "== resolver"]
    assert lines[4].startswith("the log of digits-x7k2p-")
    assert lines[5:7] == ["== trainer", "three"]
    assert scopeline("logs", run, "--step", "Trainer", "--config", config)[:2] == (0, "three\n")


def test_logs_that_grow(server: KfpServer, tmp_path: Path) -> None:
    class Growing(Play):
        """Says a word more at each look, and begins the next one."""

        def log(self, pod: str) -> str | None:
            if super().log(pod) is None or self.looks < 2:
                return None
            return "".join(f"word {i}\n{PROGRESS_MARK}{{}}\n" for i in range(self.looks)) + "wo"

    run = begin(server, tmp_path, Growing(PLAY[:1] * 5 + PLAY[1:], {"trainer": "any"}))
    kubeflow = Kubeflow(settings_of(load(tmp_path, server.url)))
    server.trouble("/log$", Answer(503))
    written: list[bytes] = []
    LogReader(kubeflow, run, "Trainer", written.append).read(QUICK)
    assert b"".join(written).decode() == "".join(f"word {i}\n" for i in range(6)) + "wo"
    assert len(written) > 3, "as they come"


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["submit", "--parameter", "epoch=3"], {}, "--parameter epoch=3: there is no parameter"),
        (
            ["compile"],
            {"image": "scopeline:latest"},
            ("`latest`"),
        ),
        (["submit"], {"image": None}, "kubeflow.image: this key is missing"),
    ],
    ids=["parameter", "latest", "no image"],
)
def test_invalid_command_is_refused_before_any_request(
    tmp_path: Path,
    scopeline: Run,
    arguments: list[str],
    changes: dict[str, Any],
    message: str,
) -> None:
    file = write_config(tmp_path, "http://127.0.0.1:9", kubeflow=changes)
    code, out, err = scopeline(*arguments, "--config", str(file))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_missing_kubeflow_exits_with_75(tmp_path: Path, scopeline: Run) -> None:
    file = write_config(tmp_path, "http://127.0.0.1:9")
    for arguments in (["submit"], ["status"], ["logs", "r"], ["schedule", "list"]):
        code, _, err = scopeline(*arguments, "--config", str(file))
        assert code == 75
        assert err.startswith("http://127.0.0.1:9: Kubeflow Pipelines does not answer (connection")
        assert err.count("\n") == 1


@pytest.mark.slow
def test_schedule_list_imports_no_tensorflow(config: str) -> None:
    script = (
        "import sys, kubeflow_runner\n"
        "early = {'kfp', 'kfp_server_api', 'kubernetes'} & set(sys.modules)\n"
        "sys.argv[1:] = ['schedule', 'list', '--config', sys.argv[1]]\n"
        "try:\n    kubeflow_runner.main()\n"
        "except SystemExit as end:\n"
        "    heavy = {'tensorflow', 'tfx', 'apache_beam', 'ml_metadata'} & set(sys.modules)\n"
        "    print(end.code, early, heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, config],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "digits: there is no recurring run\n0 set() set()\n", done.stderr
    assert done.stderr == ""
