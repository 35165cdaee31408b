"""The worked example with a table, `configs/taxi.yaml`."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import struct
from pathlib import Path

import pytest
import yaml

from components.evaluator.explanation.artifact import read_explanation
from components.example_gen.builtin import BUILTIN_DATA
from tests.support.browser import Browser
from tests.support.project import ROOT, Project
from tests.support.served_taxi import ask_for, multiply

pytestmark = pytest.mark.slow

TAXI = ROOT / "configs" / "taxi.yaml"


@pytest.fixture(scope="module")
def drawn(project: Project) -> str:
    """What a terminal showed of the run."""
    optimize = "optimize={variants: [onnx], accept: {slices: true}, required: true}"
    workers = ("--set", "beam.workers=2")
    code, drawn = project.on_terminal("run", "--config", TAXI, "--set", optimize, *workers)
    assert code == 0, drawn
    return drawn


@pytest.fixture(scope="module")
def trained(project: Project, drawn: str) -> Project:
    del drawn
    return project


def test_each_step_shows_how_far_it_is(trained: Project, drawn: str) -> None:
    rows = trained.summary("taxi")["examples"]
    total, train, evaluation = sum(rows.values()), rows["train"], rows["eval"]
    shown = {
        "ExampleGen": f"{2 * total:,} of {2 * total:,} rows read",
        "StatisticsGen": f"{total:,} of {total:,} rows read",
        "Transform": f"{train + total:,} of {train + total:,} rows read",
        "Trainer": r"epoch \d+ of \d+",
        "Evaluator": f"{evaluation:,} of {evaluation:,} rows read",
        "InfraValidator": "interface 5 of 5  predict",
        "Optimizer": "variant 1 of 1  onnx",
    }
    for component, text in shown.items():
        assert re.search(rf"{component} [^\r\n]*━[^\r\n]* {text}", drawn), component
    (log,) = (trained.output / "taxi" / "runs").glob("*/run.log")
    logged = re.findall(r"scopeline\.progress: (.*)", log.read_text())
    epochs = trained.summary("taxi")["training"]["epochs"]
    ended = [line for line in logged if re.fullmatch(r"epoch \d+ of \d+", line)]
    assert ended == [f"epoch {epoch} of {epochs}" for epoch in range(1, epochs + 1)]
    assert "rows read" not in log.read_text()


def test_model_is_good_and_pushed(trained: Project) -> None:
    summary = trained.summary("taxi")
    assert summary["metrics"]["auc"]["value"] >= 0.93
    assert summary["metrics"]["log_loss"]["value"] < 0.4
    assert sum(summary["examples"].values()) == 15_002
    assert summary["training"]["history"]["val_loss"]


def test_evaluation_explains_the_model(trained: Project) -> None:
    (folder,) = (trained.output / "taxi/pipeline_root/Evaluator/evaluation").iterdir()
    explanation = read_explanation(str(folder))
    assert explanation is not None
    summary = trained.summary("taxi")
    assert explanation.rows == explanation.of == summary["examples"]["eval"]
    # TFMA's area has 10,000 thresholds.
    auc, loss = (summary["metrics"][name]["value"] for name in ("auc", "log_loss"))
    assert explanation.roc[0].area == pytest.approx(auc, abs=1e-3)
    assert explanation.loss_value == pytest.approx(loss, abs=1e-4)
    # Tips in cash are not recorded.
    assert explanation.importances[0].column == "payment_type"
    assert explanation.effects[0].column == "payment_type"
    assert explanation.notes == []


def test_the_report_shows_the_slices_beyond_chance(trained: Project, browser: Browser) -> None:
    (report,) = trained.output.glob("taxi/runs/*/report.html")
    assert {"data", "evaluation", "slices", "usage", "variants"} <= set(browser.check(report))
    text = browser.evaluate("document.querySelector('#slices').innerText")
    assert re.search(
        r"auc: \d of \d tested slices? differs? beyond chance: .*payment_type=Credit Card", text
    )


def test_a_variant_is_as_good_as_the_model_on_every_slice(trained: Project) -> None:
    summary = trained.summary("taxi")
    (variant,) = summary["variants"]["variants"]
    assert (variant["name"], variant["accepted"]) == ("onnx", True)
    auc = summary["metrics"]["auc"]["value"]
    assert variant["metrics"]["auc"] == pytest.approx(auc, abs=1e-4)
    assert variant["slices"].keys() == summary["slices"].keys()
    assert variant["latency_ratio"] < 1


def test_unknown_private_column_is_refused_though_the_data_was_read(trained: Project) -> None:
    done = trained.scopeline("run", "--config", TAXI, "--set", "report.private=[compny]")
    assert done.returncode == 2
    assert "report.private.0: the data has no column `compny`; did you mean `company`?" in (
        done.stdout
    )
    details = trained.summary("taxi")["details"]
    assert details["config"]["report"] == {"private": ["compny"]}
    assert details["lineage"]["machine"]["cores"]
    assert (details["columns"], details["costs"], details["notes"]) == ([], {}, [])


def test_a_file_is_predicted_and_measured(trained: Project, tmp_path: Path) -> None:
    table, answers = BUILTIN_DATA["taxi"].locate(tmp_path), tmp_path / "answers.csv"
    options = ("--config", TAXI, "--input", table, "--output", answers, "--columns", "big_tipper")
    done = trained.scopeline("predict", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(answers.open()))
    answers.rename(tmp_path / "model.csv")
    done = trained.scopeline("predict", *options, "--variant", "onnx")
    assert done.returncode == 0, done.stdout + done.stderr
    for row, other in zip(rows, csv.DictReader(answers.open()), strict=True):
        assert row.keys() == other.keys()
        assert float(row["score_1"]) == pytest.approx(float(other["score_1"]), abs=1e-4)
    right = sum(row["big_tipper"] == row["class"] for row in rows) / len(rows)

    measured = trained.scopeline("evaluate", "--config", TAXI, "--input", table)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert "on 15,002 rows" in measured.stdout
    header, whole, *slices = measured.stdout.splitlines()[1:]
    found = dict(zip(header.split()[1:], whole.split()[1:], strict=True))
    assert float(found["accuracy"]) == pytest.approx(right, abs=1e-4)
    assert sum(line.startswith("payment_type=") for line in slices) >= 4


@pytest.fixture(scope="module")
def logged(trained: Project) -> tuple[Path, list[str]]:
    """The log of 2,000 trips that were requested, and their labels."""
    log, table = trained.folder / "requests", BUILTIN_DATA["taxi"].locate(trained.folder)
    return log, ask_for(trained, TAXI, table, 2000, log)


def test_requests_are_the_data_of_a_later_config(
    trained: Project, logged: tuple[Path, list[str]]
) -> None:
    log, labels = logged
    ids = [f"trips-{n // 100},{label}" for n, label in enumerate(labels)]
    lines = [f"{name.replace(',', f'/{n % 100},')}" for n, name in enumerate(ids)]
    (trained.folder / "tips.csv").write_text("\n".join(["request_id,big_tipper", *lines[:1900]]))
    later = {
        "name": "later",
        "task": "binary",
        "data": {
            "format": "parquet",
            "path": str(log / "{YYYY}-{MM}-{DD}" / "*.parquet"),
            "label": "big_tipper",
            "labels": {"path": "tips.csv", "key": "request_id"},
        },
        "schedule": {"settle": "0s"},
    }
    (trained.folder / "later.yaml").write_text(yaml.safe_dump(later))
    done = trained.scopeline("run", "--config", "later.yaml", "--validate-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(trained.summary("later")["examples"].values()) == 1900
    output = " ".join(done.stdout.split())
    assert f"left out 100 rows without a label in {trained.folder / 'tips.csv'}, first" in output


def test_requests_that_are_unlike_the_training_data_are_found(
    trained: Project, logged: tuple[Path, list[str]]
) -> None:
    log, _ = logged
    columns = "{fare: {jensen_shannon: 0.1}, payment_type: {infinity_norm: 0.1}}"
    options = ("--config", TAXI, "--set", f"skew={{requests: {log}, columns: {columns}}}")
    alike = trained.scopeline("skew", *options)
    assert alike.returncode == 0, alike.stdout + alike.stderr
    assert alike.stdout.count("as in training") == 2
    first = trained.scopeline("skew", *options, "--record")
    assert (first.returncode, first.stdout.strip()[-22:]) == (0, "like the training data"), first

    multiply(log, "fare", 10.0)
    skewed = trained.scopeline("skew", *options, "--json")
    assert skewed.returncode == 3, skewed.stdout + skewed.stderr
    found = {one["column"]: one for one in json.loads(skewed.stdout)["columns"]}
    assert [name for name, one in found.items() if one["is_skewed"]] == ["fare"]
    version = trained.versions("taxi")[-1]
    assert (
        f"compared with the training data of version {version}: mean 1" in found["fare"]["in_words"]
    )
    schedule = ("--set", "schedule={cron: 0 3 1 1 *}", "--set", "notify.occasions=[skew]")
    looked = trained.scopeline("schedule", *options, *schedule, "--once")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert "fare: expected the distribution of the values to change by at most" in looked.stdout
    again = trained.scopeline("skew", *options, "--record")
    assert again.stdout.strip() == "skew: there are too few new requests"
    history = trained.scopeline("history", "--config", TAXI, "--kind", "skew", "--json")
    (event,) = json.loads(history.stdout)
    assert event["details"] == {"columns": ["fare"], "version": int(version), "rows": 2000}


def write_first(source: Path, target: Path, count: int) -> None:
    """An IDX file with the first so many entries of another, which may be gzipped."""
    content = source.read_bytes()
    content = gzip.decompress(content) if source.suffix == ".gz" else content
    sizes = struct.unpack_from(f">{content[3]}I", content, 4)
    header = content[:4] + struct.pack(f">{len(sizes)}I", count, *sizes[1:])
    begin = len(header)
    target.write_bytes(header + content[begin : begin + count * math.prod(sizes[1:])])


def test_mnist_reads_idx_files(project: Project) -> None:
    """A part of them, as all of them would train for a minute."""
    data = ROOT.parent / "shared" / "data" / "mnist"
    if not data.exists():
        pytest.skip(f"no MNIST files at {data}")
    (project.folder / "mnist").mkdir()
    for file in data.iterdir():
        write_first(file, project.folder / "mnist" / file.name.removesuffix(".gz"), 1000)
    settings = (
        f"data.path={project.folder / 'mnist'}",
        "model={kind: cnn, filters: [8], hidden_units: [32]}",
        "train.epochs=4",
        "train.learning_rate=0.01",
        "evaluate.thresholds={accuracy: {min: 0.7}}",
    )
    options = [part for setting in settings for part in ("--set", setting)]
    done = project.scopeline("run", "--config", ROOT / "configs" / "mnist.yaml", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = project.summary("mnist")
    assert sum(summary["examples"].values()) == 1000
    assert summary["metrics"]["accuracy"]["value"] > 0.7
