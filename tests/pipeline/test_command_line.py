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
from pipeline.cli.predict import call_sample_function, new_folder
from trainer_module.errors import ConfigError, TrainingError
from trainer_module.families import SampleRequest
from trainer_module.typed_words import typed_command, typed_kubeflow_command

ROOT = Path(__file__).parents[2]


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


def test_options_before_a_command_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "local_runner.py", "--config", "one.yaml", "models"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    program = f"{sys.executable} {ROOT}/local_runner.py"
    assert done.stderr == (
        f"--config: write options after the command: `{program} models --config ...`\n"
    )


APPS = {"scopeline": local_runner.app, "scopeline-kubeflow": kubeflow_runner.app}


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of a group and of all its commands."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, (*path, name))


@pytest.mark.parametrize(
    ("name", "path"),
    [(name, path) for name, app in APPS.items() for path in commands_of(get_command(app))],
    ids=str,
)
def test_help_fits_a_screen(name: str, path: tuple[str, ...]) -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(APPS[name], [*path, "--help"], prog_name=name)
    assert done.exit_code == 0, done.exception
    lines = done.output.splitlines()
    assert len(lines) <= (40 if path else 23)  # The prompt takes the last line of 24.
    assert max(len(line) for line in lines if "Example: " not in line) <= 80
    # No types or ranges as values, and a text for each option and each command.
    assert not re.search(r"<\w+>$|bool|None|x>=", done.output.replace("<server>", ""))
    rows = [line for line in lines if re.match(r"  (--|-h|[a-z]+  )", line)]
    assert all(re.search(r"\S  +\S", row) for row in rows)
    for page in re.findall(r"docs/\S+\.md", done.output):
        assert (ROOT / page).is_file()


def test_a_shell_completes_commands() -> None:
    typed = {"COMP_WORDS": "scopeline sch", "COMP_CWORD": "1"}
    runner = CliRunner(env={"_SCOPELINE_COMPLETE": "complete_bash", **typed})
    done = runner.invoke(local_runner.app, prog_name="scopeline")
    assert done.output.split() == ["schedule", "schema"]


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
        (["plan"], ""),
        (["plan", "a b.yaml"], " --config 'a b.yaml'"),
        (
            ["plan", "a.yaml", "--set", "notify.webhook.url=secret", "--output", "o"],
            " --config a.yaml --set notify.webhook.url=... --output o",
        ),
        (["a.yaml", "--output", "o"], " --config a.yaml --output o"),
        (["serve", "--model", "m"], " --config FILE"),
        (["serve", "--model", "m", "--config", "a.yaml"], " --config a.yaml"),
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


def test_options_of_a_kubeflow_file_are_left_out(tmp_path: Path) -> None:
    config = str(tmp_path / "none.yaml")
    CliRunner().invoke(kubeflow_runner.app, ["compile", "--config", config, "--output", "p.yaml"])
    assert typed_kubeflow_command("submit") == f"scopeline-kubeflow submit --config {config}"


@pytest.mark.parametrize(
    ("app", "arguments"), [(kubeflow_runner.app, []), (local_runner.app, ["cluster"])]
)
def test_group_without_a_command_shows_its_help(app: Any, arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.output.count("Commands:")) == (2, 1)


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
            return call_sample_function(
                "sampling.sample", tmp_path, SampleRequest(3, 0, label), folder
            )

    with pytest.raises(TrainingError, match=r"'sampling.sample' failed: FileNotFoundError: .*weig"):
        ask("cats")
    (tmp_path / "weights").touch()
    with pytest.raises(ConfigError, match=r"samples: the folder cannot be written: .*dogs"):
        ask("dogs")
    assert list((tmp_path / "out").iterdir()) == []
    assert ask("cats") == "3 pictures"
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["samples", "cats", "one.png"]


@pytest.mark.parametrize(
    "arguments", [["plan", "none.yaml"], ["none.yaml"], ["models", "none.yml"]]
)
def test_the_config_may_be_the_first_argument(arguments: list[str]) -> None:
    done = CliRunner().invoke(local_runner.app, arguments)
    assert "there is no such config file" in str(done.exception)
    assert "none.y" in str(done.exception)


def test_predict_takes_answers_and_still_its_former_options(tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        given = ("predict", "--model", str(tmp_path), "--input", "rows.csv", *arguments)
        done = CliRunner().invoke(local_runner.app, given)
        return f"{done.exception} {done.stderr}"

    assert "--answers is missing" in said()
    assert "write --answers a.csv" in said("--output", "a.csv")
    assert "write --answers" not in said("--answers", "a.csv", "--output", str(tmp_path))
