"""The command line's options: before a command or after it, and how help shows them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kubeflow_runner
import local_runner
from pipeline.cli.serving.predict import ask_for_samples, new_folder
from pipeline.records.event_log import EventKind, EventLog
from trainer_module.errors import ConfigError, TrainingError
from trainer_module.families import SampleRequest

ROOT = Path(__file__).parents[2]
Shown = Callable[..., list[str]]


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """The messages of the events that `history --json` shows: each says where its ledger is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = (ROOT / "configs" / "digits.yaml").read_text()
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(config.replace("name: digits", f"name: {name}"))
        for output in ("output", "here", "there"):
            folder = tmp_path / output / name
            folder.mkdir(parents=True)
            EventLog(folder / "ledger.db").record(EventKind.DUE, f"{output}/{name}")

    def show(*arguments: str) -> list[str]:
        events: list[dict[str, Any]] = json.loads(run(*arguments, "--json"))
        return [event["message"] for event in events]

    return show


def run(*arguments: str) -> str:
    """What a command shows, in this process.

    Raises:
      ConfigError: it refuses.
    """
    done = CliRunner().invoke(local_runner.app, arguments)
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("runner", ["local_runner", "kubeflow_runner"])
def test_interrupt_while_modules_are_imported_leaves_no_traceback(
    tmp_path: Path, runner: str
) -> None:
    """A first import that interrupts its own process stands for somebody who is quick."""
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    script = tmp_path / f"{runner}.py"
    script.write_text((ROOT / script.name).read_text())
    done = subprocess.run(
        [sys.executable, str(script), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_options_before_a_command_count_for_it(shown: Shown) -> None:
    assert shown("--config", "two.yaml", "history") == ["output/two"]
    assert shown("--output", "here", "history", "--config", "one.yaml") == ["here/one"]
    before = ("--config", "one.yaml", "--output", "here")
    assert shown(*before, "history") == ["here/one"]
    assert shown(*before, "history", "--output", "there") == ["there/one"]
    assert shown(*before, "history", "--config", "two.yaml") == ["here/two"]


def test_overrides_before_and_after_a_command_add_up(shown: Shown) -> None:
    before = ("--config", "one.yaml", "--set", "name=two", "history")
    assert shown(*before, "--set", "train.epochs=2") == ["output/two"]
    assert shown(*before, "--set", "name=one") == ["output/one"]
    with pytest.raises(ConfigError, match=r"train.epochs: found 'zzz'"):
        shown("--config", "one.yaml", "--set", "train.epochs=zzz", "history")
    with pytest.raises(ConfigError, match=r"train.epochs: found 'zzz'"):
        run("--set", "train.epochs=zzz", "schedule", "--config", "one.yaml", "--list")


def test_option_reaches_the_commands_of_a_group() -> None:
    with pytest.raises(ConfigError, match="there is no cluster in here/cluster;"):
        run("--output", "here", "cluster", "stop")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--verbose", "models"], "--verbose: `models` has no such option; leave it out"),
        (["--config", "one.yaml", "doctor"], "--config: `doctor` has no such option"),
        (["--set", "name=two", "cluster", "status"], "--set: `cluster` has no such option"),
    ],
)
def test_option_that_a_command_lacks_is_refused(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "local_runner.py", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(words)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("app", "command", "flag"),
    [
        (local_runner.app, "run", "--validate-only"),
        (local_runner.app, "schedule", "--once"),
        (kubeflow_runner.app, "submit", "--no-wait"),
    ],
)
def test_help_shows_no_value_for_a_flag(app: Any, command: str, flag: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={**os.environ, "COLUMNS": "120"})
    (line,) = (line for line in shown.output.splitlines() if line.strip("│ ").startswith(flag))
    assert "bool" not in line.lower()


@pytest.mark.parametrize("name", ["", "other/.."])
def test_a_folder_for_samples_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="has no name"), new_folder(Path(name)):
        pass


def test_samples_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sampling.py").write_text(
        "def sample(model, request, folder):\n"
        "    (model / 'weights').read_text()\n"
        "    (folder / request.label / 'one.png').write_bytes(b'')\n"
        "    return f'{request.count} pictures'\n"
    )

    def ask(label: str) -> str:
        with new_folder(tmp_path / "out" / "samples") as folder:
            (folder / "cats").mkdir()
            return ask_for_samples("sampling.sample", tmp_path, SampleRequest(3, 0, label), folder)

    with pytest.raises(TrainingError, match=r"'sampling.sample' failed: FileNotFoundError: .*weig"):
        ask("cats")
    (tmp_path / "weights").touch()
    with pytest.raises(ConfigError, match=r"samples cannot be written: .*dogs"):
        ask("dogs")
    assert list((tmp_path / "out").iterdir()) == []
    assert ask("cats") == "3 pictures"
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["samples", "cats", "one.png"]
