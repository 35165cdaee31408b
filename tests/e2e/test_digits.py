"""The main job, `configs/digits.yaml`, from the command line: runs, reruns, plans, verdicts."""

from __future__ import annotations

import base64
import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests

import scopeline
from pipeline.cli.options import DEFAULT_CONFIG
from tests.support.browser import Browser
from tests.support.project import RUNNER, SMALL, Project, plain, snapshot

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


def test_first_run_has_the_details_of_its_report(project: Project, first) -> None:
    summary = project.summary("digits")
    details = summary["details"]
    assert details["notes"] == []
    assert {c["name"]: c["type"] for c in details["columns"]} == {
        "label": "label",
        "image": "image",
    }
    assert list(details["costs"]) == COMPONENTS
    trainer = details["costs"]["Trainer"]
    # The trainer's worker imports nothing, as it is a fork; it computes for seconds.
    assert trainer["cpu_seconds"] > summary["training"]["seconds"] / 4
    assert trainer["peak_bytes"] > 300e6
    assert trainer["written_bytes"] >= details["model"]["bytes"]
    assert details["model"]["inputs"] == {"image": "string"}
    producers = {artifact["producer"] for artifact in details["lineage"]["artifacts"]}
    assert producers == set(COMPONENTS)
    assert details["seconds"] < 5


def test_first_run_leaves_no_temporary_file(project: Project, first) -> None:
    assert not list(project.temporary.iterdir())


def test_first_run_says_so_on_the_screen(project: Project, first) -> None:
    screen = plain(first.stdout)
    for component in COMPONENTS:
        assert f"  {component} " in screen
    assert "at least 0.95: met" in screen
    assert "pushed to output/digits/serving/digits/" in screen
    assert first.stderr == ""
    log = next((project.output / "digits" / "runs").glob("*/run.log")).read_text()
    assert "Execution 1 succeeded" in log


def test_python_repeats_nothing_and_predicts_as_the_command(
    project: Project, first, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")  # The first run had no value either.
    monkeypatch.chdir(project.folder)
    model = scopeline.load_model(DEFAULT_CONFIG, output=project.output)
    result = scopeline.run(DEFAULT_CONFIG, output=project.output)
    assert f"nothing has changed since run {result.folder.name}" in capsys.readouterr().out
    assert (result.verdict, result.pushed, result.model) == ("pushed", True, model.folder)
    accuracy = project.summary("digits")["metrics"]["accuracy"]["value"]
    assert result.metrics["accuracy"] == accuracy
    assert f"<th>accuracy</th><td>{accuracy:.4g}</td>" in result._repr_html_()
    assert result.report.is_file()
    digits = [min((project.output / f"builtin/digits/{d}").iterdir()) for d in range(10)]
    predicted = model.predict({"image": digits})["class"]
    assert sum(label == path.parent.name for label, path in zip(predicted, digits, strict=True)) > 8


def test_served_model_names_the_digit(project: Project, first) -> None:
    import tensorflow as tf

    (version,) = project.versions("digits")
    model = tf.saved_model.load(str(project.output / "digits/serving/digits" / version))
    paths = [
        p
        for d in range(10)
        for p in sorted((project.output / f"builtin/digits/{d}").iterdir())[:20]
    ]
    images = [path.read_bytes() for path in paths]
    expected = [path.parent.name.encode() for path in paths]
    examples = [
        tf.train.Example(
            features=tf.train.Features(
                feature={"image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image]))}
            )
        ).SerializeToString()
        for image in images
    ]
    answer = model.signatures["serving_default"](examples=tf.constant(examples))
    named = answer["class"].numpy().tolist()
    assert sum(a == b for a, b in zip(named, expected, strict=True)) >= 0.97 * len(expected)
    assert answer["scores"].shape == (len(examples), 10)
    raw = model.signatures["serving_raw"](image=tf.constant(images))
    assert raw["class"].numpy().tolist() == named


def test_model_is_asked_for_files_and_by_http(project: Project, first, tmp_path: Path) -> None:
    sevens, answers = project.output / "builtin" / "digits" / "7", tmp_path / "answers.csv"
    done = project.scopeline("predict", "--input", sevens, "--output", answers)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(answers.open()))
    assert [Path(row["file"]).name for row in rows] == sorted(p.name for p in sevens.iterdir())
    assert sum(row["class"] == "7" for row in rows) > 0.9 * len(rows)

    # As README's curl does.
    encoded = base64.b64encode(min(sevens.iterdir()).read_bytes()).decode()
    asked = {"instances": [{"image": {"b64": encoded}}]}
    with project.served() as address:
        answer = requests.post(f"{address}/v1/models/digits:predict", json=asked, timeout=60)
    assert answer.ok, answer.text
    predicted = answer.json()["predictions"][0]
    assert predicted["class"] == rows[0]["class"]
    assert predicted["scores"][7] == pytest.approx(float(rows[0]["score_7"]), abs=1e-5)


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


def test_forced_run_is_cached_and_plan_changes_nothing(project: Project, first) -> None:
    before = project.versions("digits")
    second = project.scopeline("run", "--force")
    assert second.returncode == 0
    assert set(project.states("digits").values()) == {"cached"}
    assert second.stdout.count("cached") == len(COMPONENTS)
    details = project.summary("digits")["details"]
    assert details["costs"] == {}, "only what ran has costs"
    assert len(details["columns"]) == 2
    assert {a["producer"] for a in details["lineage"]["artifacts"]} == set(COMPONENTS)
    assert project.versions("digits") == before

    files = snapshot(project.output)
    plan = project.scopeline("plan")
    assert plan.returncode == 0
    assert plan.stdout.count("its inputs and settings have not changed") == len(COMPONENTS)
    assert "nothing to do" in plan.stdout
    assert snapshot(project.output) == files


def test_plan_says_what_would_run_and_why(project: Project, first) -> None:
    plan = project.scopeline("plan", "--set", "train.epochs=1").stdout
    assert "Transform         cached" in plan
    assert "Trainer           runs    changed: train.epochs 12 -> 1" in plan
    assert "Evaluator         runs    after Trainer" in plan
    other = project.scopeline("plan", "--set", "name=other").stdout
    assert "ExampleGen        runs    it has not run yet" in other
    assert not (project.output / "other").exists()


def test_missed_threshold_pushes_nothing(project: Project, first) -> None:
    before = project.versions("digits")
    done = project.scopeline("run", "--set", "evaluate.thresholds.accuracy.min=0.9999")
    assert done.returncode == 3
    assert "not blessed, not pushed: accuracy is 0.9" in done.stdout
    assert "below the threshold of 0.9999" in done.stdout
    states = project.states("digits")
    assert states["Trainer"] == "cached"
    assert (states["Evaluator"], states["Pusher"]) == ("ran", "skipped")
    details = project.summary("digits")["details"]
    assert "Evaluator" in details["costs"]
    assert not {"Trainer", "Pusher"} & details["costs"].keys()
    assert details["model"]["parameters"] > 1000
    assert project.versions("digits") == before


def test_worse_model_than_the_one_in_service_is_not_pushed(project: Project, first) -> None:
    before = project.versions("digits")
    in_service = project.scopeline("run") and project.summary("digits")["metrics"]["accuracy"]
    easy = "evaluate.thresholds={accuracy: {min: 0.01}}"
    done = project.scopeline("run", "--set", SMALL, "--set", "train.epochs=1", "--set", easy)
    assert done.returncode == 3
    accuracy = project.summary("digits")["metrics"]["accuracy"]
    assert accuracy["in_service"] == pytest.approx(in_service["value"])
    assert accuracy["value"] < accuracy["in_service"]
    assert "of the model in service" in project.summary("digits")["reason"]
    assert project.versions("digits") == before


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
