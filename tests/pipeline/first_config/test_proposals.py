"""The config that `init` proposes for data of many kinds passes the checks of `plan` unedited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from some_data import KINDS, Kind
from typer.testing import CliRunner

import local_runner
from pipeline.config.loading import load_config
from pipeline.layout import Layout
from pipeline.run_context import resolve_run
from pipeline.runs.run import check_new_data

ROOT = Path(__file__).parents[3]


def value_at(config: dict[str, Any], key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


def init(*arguments: str) -> str:
    """What the command prints, without a terminal."""
    done = CliRunner().invoke(local_runner.app, ["init", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_proposed_config_passes_plan_unedited(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = init(kind.write(tmp_path))
    text = Path("config.yaml").read_text()
    found = yaml.safe_load(text)
    assert {key: value_at(found, key) for key in kind.expected} == kind.expected
    config = load_config(Path("config.yaml"))
    check_new_data(resolve_run(config, Layout.of(config.name, config.push, tmp_path / "output")))
    assert text.startswith("# yaml-language-server: $schema=config.schema.json\n")
    assert (output + text).replace("\n", "").isprintable()
    assert 8 <= len(text.splitlines()) <= 26
    assert "run config.yaml" in output.splitlines()[-1]
