"""The command line's options: where they stand, and how help shows them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import kubeflow_runner
import local_runner
from trainer_module.typed_words import typed_command

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
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


def test_options_before_a_command_are_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scopeline", "--config", "one.yaml", "models"])
    with pytest.raises(SystemExit) as ended:
        local_runner.main()
    assert ended.value.code == 2
    assert "`scopeline models --config ...`" in capfd.readouterr().err


APPS = {"scopeline": local_runner.app, "scopeline-kubeflow": kubeflow_runner.app}


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of a group and of all its commands."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, (*path, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", APPS)
def test_help_fits_a_screen(name: str) -> None:
    for path in commands_of(get_command(APPS[name])):
        runner = CliRunner(env={"COLUMNS": "80"})
        done = runner.invoke(APPS[name], [*path, "--help"], prog_name=name)
        assert done.exit_code == 0, done.exception
        lines = done.output.splitlines()
        assert len(lines) <= (40 if path else 23), path  # The prompt takes the last line of 24.
        assert max(len(line) for line in lines if "Example: " not in line) <= 80, path
        # No types or ranges as values, and a text for each option and each command.
        shown = done.output.replace("<server>", "")
        assert not re.search(r"<\w+>$|bool|None|x>=", shown), path
        rows = [line for line in lines if re.match(r"  (--|-h|[a-z]+  )", line)]
        assert all(re.search(r"\S  +\S", row) for row in rows), path
        for page in re.findall(r"docs/\S+\.md", done.output):
            assert (ROOT / page).is_file(), path


def test_first_screen_lists_every_command_as_the_user_types_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCOPELINE_PROGRAM", ".venv/bin/python local_runner.py")
    for app in APPS.values():
        screen = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["--help"]).output
        group: Any = get_command(app)
        assert set(group.commands) <= set(re.findall(r"[a-z]+", screen))
        assert "\n  Options: --version, -h\n" in screen
    screen = CliRunner(env={"COLUMNS": "80"}).invoke(local_runner.app, ["--help"]).output
    assert screen.startswith("Usage: .venv/bin/python local_runner.py COMMAND")
    assert "\n    serve the model   .venv/bin/python local_runner.py serve config.yaml\n" in screen
    assert len(screen.splitlines()) <= 23
    assert max(map(len, screen.splitlines())) <= 80
    example = CliRunner().invoke(kubeflow_runner.app, ["schedule", "manifest", "--help"]).output
    line = (
        "Example: .venv/bin/python kubeflow_runner.py schedule manifest --config my.yaml | kubectl"
    )
    assert f"\n  {line} apply -f -\n" in example


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["plan", "a b.yaml"], " --config 'a b.yaml'"),
        (
            ["plan", "a.yaml", "--set", "notify.webhook.url=secret", "--output", "o"],
            " --config a.yaml --set notify.webhook.url=... --output o",
        ),
        (["schedule", "--config", "a.yaml", "--config", "b.yaml"], " --config FILE"),
    ],
)
def test_commands_in_messages_have_the_options_of_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], options: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipeline.cli.run.load_here", lambda *_: sys.exit(9))
    CliRunner().invoke(local_runner.app, arguments)
    assert typed_command("rollback") == f"scopeline rollback{options}"


@pytest.mark.parametrize(
    "arguments", [["plan", "none.yaml"], ["none.yaml"], ["models", "none.yml"]]
)
def test_the_config_may_be_the_first_argument(arguments: list[str]) -> None:
    done = CliRunner().invoke(local_runner.app, arguments)
    assert "there is no such config file" in str(done.exception)
    assert "none.y" in str(done.exception)
