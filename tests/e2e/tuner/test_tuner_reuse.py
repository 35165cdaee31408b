"""Nights that take what an earlier search has found, until the data has drifted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.project import Project, plain, write_span

pytestmark = pytest.mark.slow

CONFIG = """
name: nights
data: {format: csv, path: "days/{SPAN}/*.csv"}
task: binary
model: {kind: mlp, hidden_units: [8]}
train: {epochs: 1}
tune: {trials: 2, reuse: true, space: {train.batch_size: {choice: [16, 32]}}}
drift:
  columns: {price plan: {infinity_norm: 0.3}}
  on_drift: warn
"""
GOLD = (0.5, 0.5, 1.0)
"""The part of each night's customers who have that plan."""

Night = tuple[str, dict[str, Any]]
"""What was output, and the leaderboard."""


@pytest.fixture(scope="module")
def nights(project: Project) -> list[Night]:
    (project.folder / "nights.yaml").write_text(CONFIG)
    found = []
    for number, gold in enumerate(GOLD, 1):
        write_span(project.folder, number, gold)
        done = project.scopeline("tune", "--config", "nights.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert project.states("nights")["Tuner"] == "ran"
        found.append((plain(done.stdout), project.summary("nights")["tuning"]))
    return found


def test_the_next_night_takes_what_was_found(nights: list[Night]) -> None:
    (output, first), (then, second), _ = nights
    assert "reuses the best values" not in output
    assert "reused" not in first
    assert f"reuses the best values of execution {second['reused']} (tune.reuse)" in then
    assert second == {**first, "reused": second["reused"]}


def test_a_drift_asks_for_a_search(nights: list[Night]) -> None:
    _, (_, second), (output, third) = nights
    assert re.search(r"compared with span 2: 'basic' from \d+ % to none", output)
    assert "reuses the best values" not in output
    assert "reused" not in third
    assert third["trials"] != second["trials"]
