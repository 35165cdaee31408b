"""The main job, `configs/digits.yaml`, from the command line: runs, reruns, plans, verdicts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.project import RUNNER, Project, plain

pytestmark = pytest.mark.slow

COMPONENTS = [
    "ExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "Transform",
    "Trainer",
    "Evaluator",
    "InfraValidator",
    "Pusher",
]


@pytest.fixture(scope="module")
def first(project: Project) -> subprocess.CompletedProcess[str]:
    """The first run: without any argument but the output, in a Python of its own."""
    return project.cold()


def test_first_run_pushes_a_good_model(project: Project, first) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    summary = project.summary("digits")
    assert summary["status"] == "pushed"
    assert summary["metrics"]["accuracy"]["value"] >= 0.97
    assert summary["blessed"] is True
    assert (
        summary["reason"]
        == "every threshold is met, and there is no model in service to compare with"
    )
    assert [c["name"] for c in summary["components"]] == COMPONENTS
    assert {c["state"] for c in summary["components"]} == {"ran"}
    assert sum(summary["examples"].values()) == 1797
    assert (summary["strategy"], summary["replicas"]) == ("mirrored", 1)
    assert summary["pushed"].endswith("serving/digits/" + project.versions("digits")[0])


def test_first_run_writes_an_offline_report(project: Project, first, browser: Browser) -> None:
    (report,) = project.output.glob("digits/runs/*/report.html")
    sections = ["verdict", "data", "training", "evaluation", "certificate", "steps", "lineage"]
    assert browser.check(report) == sections
    assert browser.evaluate("[...document.images].filter(i => i.naturalWidth > 0).length") >= 20


def test_first_run_says_so_on_the_screen(project: Project, first) -> None:
    screen = plain(first.stdout)
    for component in COMPONENTS:
        assert f"  {component} " in screen
    assert "at least 0.95: met" in screen
    assert "pushed to output/digits/serving/digits/" in screen
    assert first.stderr == ""
    log = next((project.output / "digits" / "runs").glob("*/run.log")).read_text()
    assert "Execution 1 succeeded" in log


def test_results_of_steps_are_shown(project: Project, first) -> None:
    transformed = project.scopeline("show", "transform", "--rows", "2")
    assert "(784 values)" in transformed.stdout, transformed.stderr
    shown = project.scopeline("show", "Evaluator", "--predictions", "--rows", "3")
    assert shown.returncode == 0, shown.stderr
    assert "Predictions of the first rows of eval" in shown.stdout
    rows = re.findall(r"^[123] +(\d) .*?(\d) \(\d+(?:\.\d)?%\)", plain(shown.stdout), re.MULTILINE)
    assert len(rows) == 3
    assert sum(label == predicted for label, predicted in rows) >= 2
    pushed = project.scopeline("show", "Pusher").stdout
    assert "model_card.md" in pushed


def test_deleted_version_is_pushed_again_from_cache(project: Project, first) -> None:
    (version,) = project.versions("digits")
    served = project.output / "digits/serving/digits" / version
    files = sorted(p.name for p in served.rglob("*"))
    shutil.rmtree(served)
    done = project.scopeline("run")
    assert done.returncode == 0
    assert "the served version was missing; pushed again" in done.stdout
    assert sorted(p.name for p in served.rglob("*")) == files


def test_tfx_command_line_takes_the_runner(project: Project, first, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(project.folder))
    tfx = Path(sys.executable).parent / "tfx"
    done = subprocess.run(
        [tfx, "pipeline", "create", "--engine", "local", "--pipeline-path", RUNNER],
        cwd=project.folder,
        capture_output=True,
        text=True,
    )
    assert 'Pipeline "digits" created successfully' in done.stdout, done.stderr
