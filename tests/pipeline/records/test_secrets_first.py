"""Commands that tell somebody find out first whether they can."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import local_runner
from tests.support.notifying import DIGITS
from trainer_module.errors import ConfigError

HOOK = "notify.webhook={url: 'https://example.com/hook', secret_variable: HOOK_KEY}"


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        ["approve", "7", "--reason", "looks right"],
        ["schedule", "--set", "schedule.on_new_data=true"],
        ["skew", "--record"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_without_its_secret_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], value: str | None
) -> None:
    monkeypatch.delenv("HOOK_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("HOOK_KEY", value)
    options = ["--config", str(DIGITS), "--set", HOOK, "--output", str(tmp_path)]
    done = CliRunner().invoke(local_runner.app, [*command, *options])
    assert isinstance(done.exception, ConfigError), done.output
    assert str(done.exception).startswith(
        "notify.webhook.secret_variable: the environment variable HOOK_KEY"
    )
    assert not list(tmp_path.iterdir())


def test_scheduled_check_without_its_secret_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_KEY", raising=False)
    options = ["--config", str(DIGITS), "--set", HOOK, "--output", str(tmp_path)]
    command = ["schedule", "--once", "--set", "schedule.on_new_data=true"]
    done = CliRunner().invoke(local_runner.app, [*command, *options])
    assert done.exit_code == 2
    assert "the environment variable HOOK_KEY" in done.output
    assert not (tmp_path / "digits" / "runs").exists()
