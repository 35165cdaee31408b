"""A family of tasks from outside, as docs/your-code.md shows it: no label, no TFMA, its own loop.

Two lines in the registries are all that the product is shown it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.support.project import Project

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/your-code.md"


class FamilyProject(Project):
    """A project whose runner adds a family to the registries."""

    def command(self, *arguments: str | Path) -> list[str]:
        own = str(self.folder / "spheres_runner.py")
        return [sys.executable, own, *super().command(*arguments)[2:]]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> FamilyProject:
    """A folder with the page's files and points around (1, 2), of which a model is pushed."""
    folder = tmp_path_factory.mktemp("points")
    page = PAGE.read_text()
    section = page[page.index("## A family of tasks") :]
    for name, code in re.findall(r"```\w+\n# ([\w.]+).*?\n(.*?)```", section, re.DOTALL):
        (folder / name).write_text(code)
    rows = [f"{1 + 0.1 * (n % 5 - 2)},{2 + 0.1 * (n % 7 - 3)}" for n in range(70)]
    (folder / "points.csv").write_text("\n".join(["x,y", *rows]))
    project = FamilyProject(folder)
    done = project.scopeline("run", "--config", "points.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_the_model_is_measured_certified_and_pushed(points: FamilyProject) -> None:
    summary = points.summary("points")
    assert list(points.states("points")) == ["Trainer", "Evaluator", "InfraValidator", "Pusher"]
    distance = summary["metrics"]["distance"]
    assert distance["value"] < 0.3
    assert distance["needs"] == "at most 0.5"
    assert {"serving_raw", "rest", "open_inference", "predict"} == summary["certificate"][
        "ways"
    ].keys()
    assert len(points.versions("points")) == 1


def test_a_worse_model_is_not_pushed(points: FamilyProject) -> None:
    pushed = points.versions("points")
    loose = "evaluate.thresholds.distance.max=5"
    done = points.scopeline(
        "run", "--config", "points.yaml", "--set", "task.steps=9", "--set", loose
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(
        r"distance is \d.*, worse than the 0\.\d+ of the model in service", done.stdout
    )
    assert points.versions("points") == pushed
    assert points.states("points")["Pusher"] == "skipped"


def predict(points: FamilyProject, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Asks the newest version without the family: the pushed folder says what it takes."""
    version = points.output / "points/serving/points" / points.versions("points")[-1]
    return Project(points.folder).scopeline("predict", *arguments, "--model", version)


def test_files_and_requests_are_answered(points: FamilyProject) -> None:
    (points.folder / "rows.csv").write_text("id,x,y\nnear,1,2\nfar,4,6\n")
    done = predict(points, "--input", "rows.csv", "--output", "answers.csv", "--columns", "id")
    assert done.returncode == 0, done.stdout + done.stderr
    header, near, far = (points.folder / "answers.csv").read_text().splitlines()
    assert header == '"id","distance"'
    with points.served("--config", "points.yaml") as address:
        url = f"{address}/v1/models/points:predict"
        answer = requests.post(
            url, json={"instances": [{"x": 1, "y": 2}, {"x": 4, "y": 6}]}, timeout=60
        )
        refused = requests.post(url, json={"instances": [{"x": "one", "y": 2}]}, timeout=60)
    assert refused.status_code == 400
    for line, found in zip((near, far), answer.json()["predictions"], strict=True):
        assert float(line.split(",")[1]) == pytest.approx(found, abs=1e-5)
    assert answer.json()["predictions"][1] == pytest.approx(5, abs=0.1)


def test_what_the_family_does_not_know_is_refused(points: FamilyProject) -> None:
    wrong = {
        "task.steps=0": "task.steps: found 0; expected a number above 0",
        "data.label=x": "data.label: `task: sphere` does not read this key; remove it",
        "model.kind=cnn": "model: `task: sphere` does not read this key; remove it",
        "evaluate.thresholds.accuracy.min=1": "`task: sphere` has no metric 'accuracy'",
        "evaluate.metrics=[my_metrics.Cost]": "`task: sphere` has the metrics distance",
    }
    overrides = [word for override in wrong for word in ("--set", override)]
    done = points.scopeline("plan", "--config", "points.yaml", *overrides)
    assert done.returncode == 2
    assert [output for output in wrong.values() if output not in done.stderr] == []


def test_all_spans_of_a_window_are_learnt_from(points: FamilyProject) -> None:
    for span, centre in ((1, 1), (2, 3)):
        file = points.folder / f"points-{span}.csv"
        file.write_text("x,y\n" + f"{centre},2\n" * 10)
        os.utime(file, (0, 0))  # Else it may still be being written.
    overrides = ("name=spans", "data.path=points-{SPAN}.csv", "schedule={window: {last: 2}}")
    wide = "evaluate.thresholds.distance.max=5"
    options = [word for one in (*overrides, wide) for word in ("--set", one)]
    done = points.scopeline("run", "--config", "points.yaml", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    distance = points.summary("spans")["metrics"]["distance"]["value"]
    assert distance == pytest.approx(1, abs=0.01)  # Of points on both sides of the centre.


def test_another_code_of_the_family_trains_again(points: FamilyProject) -> None:
    points.scopeline("run", "--config", "points.yaml")
    source = points.folder / "spheres.py"
    source.write_text(source.read_text().replace("0.1 * tape", "0.2 * tape"))
    done = points.scopeline("plan", "--config", "points.yaml")
    assert re.search(r"Trainer +runs +changed: the code that it runs", done.stdout)
