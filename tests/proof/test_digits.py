"""Pictures from the command line to a pushed model, and what comes after: the main job, shortened.

The tests go on with one folder in their order.
"""

from __future__ import annotations

import base64
import csv
import subprocess
from pathlib import Path

import pytest
import requests
import tensorflow as tf
import yaml

import scopeline
from pipeline.cli.options import DEFAULT_CONFIG
from tests.support.project import SMALL, Project, plain, snapshot

pytestmark = pytest.mark.proof

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
SHORT = [
    *("--set", "train.epochs=3", "--set", SMALL, "--set", "train.learning_rate=0.01"),
    *("--set", "evaluate.thresholds={accuracy: {min: 0.8}}"),
]


@pytest.fixture(scope="module")
def first(project: Project) -> subprocess.CompletedProcess[str]:
    """The first run, in a Python of its own."""
    return project.cold("run", *SHORT)


def test_a_model_is_trained_and_pushed(project: Project, first) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    summary = project.summary("digits")
    assert (summary["status"], summary["blessed"]) == ("pushed", True)
    assert summary["metrics"]["accuracy"]["value"] >= 0.8
    assert [c["name"] for c in summary["components"]] == COMPONENTS
    assert set(project.states("digits").values()) == {"ran"}
    assert sum(summary["examples"].values()) == 1797
    assert (summary["strategy"], summary["replicas"]) == ("mirrored", 1)
    assert summary["pushed"].endswith("serving/digits/" + project.versions("digits")[0])


def test_the_screen_names_each_component_and_the_version(project: Project, first) -> None:
    screen = plain(first.stdout)
    assert [name for name in COMPONENTS if f"  {name} " in screen] == COMPONENTS
    assert f"output/digits/serving/digits/{project.versions('digits')[0]}" in screen
    assert first.stderr == ""


def test_summary_has_costs_lineage_and_inputs(project: Project, first) -> None:
    details = project.summary("digits")["details"]
    assert details["notes"] == []
    assert {c["name"]: c["type"] for c in details["columns"]} == {
        "label": "label",
        "image": "image",
    }
    assert list(details["costs"]) == COMPONENTS
    trainer = details["costs"]["Trainer"]
    # The worker that trains is a fork, which imports nothing.
    assert trainer["cpu_seconds"] > project.summary("digits")["training"]["seconds"] / 4
    assert trainer["peak_bytes"] > 300e6
    assert trainer["written_bytes"] >= details["model"]["bytes"]
    assert details["model"]["inputs"] == {"image": "string"}
    assert {a["producer"] for a in details["lineage"]["artifacts"]} == set(COMPONENTS)


def test_files_of_the_run(project: Project, first) -> None:
    (run,) = (project.output / "digits" / "runs").iterdir()
    assert {path.name for path in run.iterdir()} >= {"report.html", "run.log", "summary.json"}
    assert "accuracy" in (run / "report.html").read_text()
    assert not list(project.temporary.iterdir()), "no temporary file is left"


def test_pushed_model_takes_examples_and_raw_pictures(project: Project, first) -> None:
    (version,) = project.versions("digits")
    model = tf.saved_model.load(str(project.output / "digits/serving/digits" / version))
    pictures = project.output / "builtin/digits"
    paths = [path for digit in range(10) for path in sorted((pictures / str(digit)).iterdir())[:20]]
    images = [path.read_bytes() for path in paths]
    examples = [
        tf.train.Example(
            features=tf.train.Features(
                feature={"image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image]))}
            )
        ).SerializeToString()
        for image in images
    ]
    answer = model.signatures["serving_default"](examples=tf.constant(examples))
    classes = answer["class"].numpy().tolist()
    right = [a.decode() == path.parent.name for a, path in zip(classes, paths, strict=True)]
    assert sum(right) >= 0.8 * len(paths)
    assert answer["scores"].shape == (len(examples), 10)
    raw = model.signatures["serving_raw"](image=tf.constant(images))
    assert raw["class"].numpy().tolist() == classes


def test_predict_and_serve_answer_alike(project: Project, first, tmp_path: Path) -> None:
    sevens, answers = project.output / "builtin" / "digits" / "7", tmp_path / "answers.csv"
    done = project.scopeline("predict", "--input", sevens, "--output", answers)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(answers.open()))
    assert [Path(row["file"]).name for row in rows] == sorted(p.name for p in sevens.iterdir())
    assert sum(row["class"] == "7" for row in rows) > 0.8 * len(rows)

    encoded = base64.b64encode(min(sevens.iterdir()).read_bytes()).decode()
    request = {"instances": [{"image": {"b64": encoded}}]}
    with project.served() as address:
        answer = requests.post(f"{address}/v1/models/digits:predict", json=request, timeout=60)
    assert answer.ok, answer.text
    predicted = answer.json()["predictions"][0]
    assert predicted["class"] == rows[0]["class"]
    assert predicted["scores"][7] == pytest.approx(float(rows[0]["score_7"]), abs=1e-5)


def test_plan_runs_what_depends_on_a_change_and_writes_nothing(project: Project, first) -> None:
    files = snapshot(project.output)
    plan = project.scopeline("plan", *SHORT, "--set", "train.epochs=1").stdout
    states = dict(line.split()[:2] for line in plan.splitlines() if line.split()[:1])
    assert [name for name in COMPONENTS if states[name] == "cached"] == COMPONENTS[:5]
    assert [name for name in COMPONENTS if states[name] == "runs"] == COMPONENTS[5:]
    assert "train.epochs 3 -> 1" in plan
    assert snapshot(project.output) == files


def test_missed_threshold_and_worse_model_are_not_pushed(project: Project, first) -> None:
    before = project.versions("digits")
    accuracy = project.summary("digits")["metrics"]["accuracy"]["value"]
    missed = "evaluate.thresholds={accuracy: {min: 0.9999}}"
    done = project.scopeline("run", *SHORT, "--set", missed)
    assert done.returncode == 3
    states = project.states("digits")
    assert [states[name] for name in COMPONENTS[-4:]] == ["cached", "ran", "skipped", "skipped"]
    assert project.summary("digits")["blessed"] is False

    easy = (
        "train.epochs=1",
        "train.learning_rate=0.0001",
        "evaluate.thresholds={accuracy: {min: 0.01}}",
    )
    done = project.scopeline("run", *SHORT, *(p for one in easy for p in ("--set", one)))
    assert done.returncode == 3, done.stdout + done.stderr
    metric = project.summary("digits")["metrics"]["accuracy"]
    assert metric["value"] < metric["in_service"] == pytest.approx(accuracy, abs=1e-6)
    assert project.versions("digits") == before


def test_python_repeats_the_run_and_predicts(
    project: Project, first, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")  # The first run had no value either.
    monkeypatch.chdir(project.folder)
    changes = {
        key: yaml.safe_load(value) for key, value in (one.split("=", 1) for one in SHORT[1::2])
    }
    result = scopeline.run(DEFAULT_CONFIG, output=project.output, set=changes)
    assert (result.verdict, result.pushed) == ("pushed", True)
    assert set(project.states("digits").values()) == {"cached"}
    assert result.metrics["accuracy"] == project.summary("digits")["metrics"]["accuracy"]["value"]
    model = scopeline.load_model(DEFAULT_CONFIG, output=project.output)
    digits = [min((project.output / f"builtin/digits/{d}").iterdir()) for d in range(10)]
    predicted = model.predict({"image": digits})["class"]
    assert sum(c == path.parent.name for c, path in zip(predicted, digits, strict=True)) >= 8
