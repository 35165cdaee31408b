"""`schedule --once` with real runs: what is due is trained, and then nothing is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT, Project, few_digits, plain

pytestmark = pytest.mark.slow

FIRING = "2027-01-05T03:15:00+01:00"


@pytest.fixture(scope="module")
def config(project: Project) -> str:
    """A few digits, trained on every night."""
    raw = yaml.safe_load((ROOT / "configs" / "digits.yaml").read_text())
    raw["data"]["path"] = few_digits(project.folder)
    raw["model"] = {"kind": "cnn", "filters": [4], "hidden_units": [16]}
    raw["train"] = {"epochs": 1}
    raw["evaluate"] = {"thresholds": {"accuracy": {"min": 0}}}
    raw["certificate"] = {"enabled": False}
    raw["schedule"] = {"cron": "0 3 * * *", "timezone": "Europe/Paris"}
    path = project.folder / "nightly.yaml"
    path.write_text(yaml.safe_dump(raw))
    return str(path)


def history(project: Project, config: str) -> list[dict[str, Any]]:
    done = project.scopeline("history", "--config", config, "--json")
    return list(json.loads(done.stdout))


def test_due_run_is_done_once(project: Project, config: str) -> None:
    first = project.scopeline("schedule", "--config", config, "--once", "--now", FIRING)
    assert first.returncode == 0, first.stdout + first.stderr
    (version,) = project.versions("digits")
    assert f"digits: finished: pushed, version {version}" in plain(first.stdout)
    events = history(project, config)
    kinds = [event["kind"] for event in events]
    assert kinds[:2] == ["due", "started"]
    assert kinds[-1] == "finished"
    reason = "cron fired at 2027-01-05 03:00 CET; no run has ended yet"
    assert (events[0]["message"], events[1]["message"]) == (reason, reason)

    # The next night there is nothing new.
    later = FIRING.replace("-05T", "-06T")
    second = project.scopeline("schedule", "--config", config, "--once", "--now", later)
    assert second.returncode == 0
    nothing = "cron fired at 2027-01-06 03:00 CET: nothing is new"
    assert second.stdout.count("\n") == 1
    assert second.stdout.endswith(f"digits: nothing to do: {nothing}\n")
    added = history(project, config)[len(events) :]
    assert [(event["kind"], event["message"]) for event in added] == [("skipped", nothing)]
    assert project.versions("digits") == [version]


def test_failed_run_is_the_exit_code(project: Project, config: str) -> None:
    done = project.scopeline(
        *("schedule", "--config", config, "--once", "--now", FIRING),
        *("--set", "name=broken", "--set", "train.strategy=tpu"),
    )
    assert done.returncode == 2
    assert "broken: failed: " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    shown = project.scopeline("schedule", "--config", config, "--set", "name=broken", "--list")
    assert "At 03:00 every day" in shown.stdout
