"""The config file as an argument of each command, and the file that `schema` never replaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import kubeflow_runner
import local_runner
from trainer_module.errors import ConfigError

COMMANDS = [
    ["run"],
    ["models"],
    ["spans"],
    ["spans", "list"],
    ["spans", "accept", "4"],
    ["schema", "accept"],
    ["approve", "12"],
    [],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_reads_the_config_that_follows_it(command: list[str]) -> None:
    reason = ["--reason", "x"] if {"4", "12"} & set(command) else []
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        CliRunner().invoke(
            local_runner.app, [*command, "absent.yaml", *reason], catch_exceptions=False
        )


def test_a_recurring_run_reads_the_config_that_follows_it() -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        CliRunner().invoke(
            kubeflow_runner.app,
            ["schedule", "apply", "absent.yaml"],
            catch_exceptions=False,
        )


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_config_is_not_replaced_by_the_json_schema(tmp_path: Path, force: list[str]) -> None:
    config = tmp_path / "daily.yaml"
    config.write_text("name: daily\n")
    with pytest.raises(ConfigError, match=r"daily\.yaml"):
        CliRunner().invoke(
            local_runner.app, ["schema", str(config), *force], catch_exceptions=False
        )
    assert config.read_text() == "name: daily\n"
