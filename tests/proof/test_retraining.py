"""Three nights of a scheduled pipeline: pushed twice, rolled back, held, approved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project, write_span

pytestmark = pytest.mark.proof

NAME = "nights"
CONFIG = """
name: nights
data: {format: csv, path: "days/{SPAN}/*.csv", label: label}
task: binary
model: {kind: mlp, hidden_units: [8]}
train: {epochs: 3, learning_rate: 0.05, batch_size: 16}
evaluate: {metrics: [accuracy], thresholds: {accuracy: {min: 0.5, tolerance: 0.3}}}
schedule:
  cron: "0 3 * * *"
  timezone: Europe/Paris
  window: {last: 2}
  warm_start: true
certificate: false
"""


class Nights:
    """A project with a span for each night, and the commands of its pipeline."""

    def __init__(self, project: Project) -> None:
        """Writes the config."""
        self.project = project
        (project.folder / "nights.yaml").write_text(CONFIG)

    def command(self, *words: str, code: int = 0) -> str:
        """Runs a command, which has to end with that code; returns its standard output."""
        done = self.project.scopeline(*words, "--config", "nights.yaml")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def play(self, night: int) -> dict[str, Any]:
        """Delivers a span, and lets the scheduler look at a quarter past three in Paris."""
        write_span(self.project.folder, night)
        self.look(night)
        return self.project.summary(NAME)

    def look(self, night: int, time: str = "03:15:00+01:00") -> str:
        """Lets the scheduler look once, at a time of a night."""
        return self.command("schedule", "--once", "--now", f"2027-01-0{night}T{time}")

    def kinds(self) -> list[str]:
        """The kinds of all events so far."""
        return [event["kind"] for event in json.loads(self.command("history", "--json"))]

    def models(self) -> list[dict[str, Any]]:
        """What `models` lists, newest first."""
        return list(json.loads(self.command("models", "--json")))

    @property
    def served(self) -> list[Path]:
        """The folders of the versions, oldest first."""
        folder = self.project.output / NAME / "serving" / NAME
        return sorted(folder.iterdir(), key=lambda version: int(version.name))


@pytest.fixture(scope="module")
def nights(project: Project) -> Nights:
    return Nights(project)


def weights(version: Path) -> bytes:
    return (version / "variables" / "variables.data-00000-of-00001").read_bytes()


def test_a_due_run_trains_and_pushes_once(nights: Nights) -> None:
    assert nights.play(1)["status"] == "pushed"
    first = nights.kinds()
    assert first == ["due", "started", "ingested", "blessed", "pushed", "finished"]
    nights.look(2)  # Nothing has been delivered.
    assert nights.kinds()[len(first) :] == ["skipped"]
    assert len(nights.served) == 1


def test_cron_fires_by_the_clock_of_its_zone(nights: Nights) -> None:
    write_span(nights.project.folder, 2)
    events = len(nights.kinds())
    # It is half past two in Paris, and half past three in Athens: the night's firing is to come.
    nights.look(3, time="01:30:00+00:00")
    assert "started" not in nights.kinds()[events:]
    assert len(nights.served) == 1


def test_the_next_span_begins_with_the_weights_in_service(nights: Nights) -> None:
    first = nights.served[-1]
    summary = nights.play(3)
    assert summary["status"] == "pushed"
    assert summary["training"]["warm_start"]
    assert summary["metrics"]["accuracy"]["in_service"] is not None
    assert weights(nights.served[-1]) != weights(first)
    states = nights.project.states(NAME)
    assert states["ExampleGen"] == "ran"


def test_rollback_serves_the_first_model_again_and_holds(nights: Nights) -> None:
    first, second = nights.served
    nights.command("rollback", "--hold", "--reason", "complaints")
    *earlier, serving = nights.served
    assert earlier == [first, second]
    assert weights(serving) == weights(first)
    assert (serving / "saved_model.pb").read_bytes() == (first / "saved_model.pb").read_bytes()


def test_a_held_model_waits_until_it_is_approved(nights: Nights) -> None:
    before = nights.served
    assert nights.play(4)["status"] == "held"
    assert nights.served == before
    (waiting,) = [model for model in nights.models() if model["waits"]]
    approval = ("approve", str(waiting["version"]), "--reason", "checked")
    nights.command(*approval, code=2)
    nights.command("release")
    nights.command(*approval)
    assert len(nights.served) == len(before) + 1
    exported = Path(waiting["model"]) / "Format-Serving"
    assert weights(nights.served[-1]) == weights(exported)
    assert {"withdrawn", "held", "released", "approved"} <= set(nights.kinds())
