"""Variants of a model: made, measured, accepted or refused, pushed, approved and used."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import ROOT, SMALL, Project, plain, wait_until

pytestmark = pytest.mark.slow

DIGITS = ROOT / "configs" / "digits.yaml"
SETTINGS = (SMALL, "train.epochs=4", "evaluate.thresholds={accuracy: {min: 0.1}}")
ALONE = """
import json, sys
from pathlib import Path

import numpy as np

from trainer_module.export.variants.running import open_variant

variant = open_variant(Path(sys.argv[1]))
features = {t.name: np.zeros((2, *t.shape[1:]), t.dtype) for t in variant.variant.inputs}
answer = variant.answer(variant.predict(features))
heavy = [name for name in ("tensorflow", "tf_keras", "tfx", "apache_beam") if name in sys.modules]
print(json.dumps({"class": answer["class"].tolist()[0].decode(), "heavy": heavy}))
"""


VARIANTS = ("float", "int8")


def command(*settings: str, variants: tuple[str, ...] = VARIANTS, **accept: float) -> list[str]:
    wanted = {"variants": list(variants), "accept": {"max_metric_drop": 0.05, **accept}}
    optimize = f"optimize={json.dumps(wanted)}"
    options = [part for one in (*SETTINGS, optimize, *settings) for part in ("--set", one)]
    return ["run", "--config", str(DIGITS), *options]


@dataclass(frozen=True)
class Approved:
    """A run that was killed in a conversion, the next one, and the approval of its model."""

    killed: subprocess.CompletedProcess[str]
    done: subprocess.CompletedProcess[str]
    summary: dict[str, Any]
    waiting: dict[str, Any]
    approval: subprocess.CompletedProcess[str]
    version: Path


def kept(project: Project) -> list[str]:
    """The variants that are done of a run that is under way."""
    folders = project.output.glob("digits/pipeline_root/Optimizer/backups/*/[!.]*")
    return [folder.name for folder in folders]


def versions(project: Project) -> list[Path]:
    return [project.output / "digits/serving/digits" / name for name in project.versions("digits")]


def models(project: Project) -> list[dict[str, Any]]:
    return list(json.loads(project.scopeline("models", "--config", DIGITS, "--json").stdout))


@pytest.fixture(scope="module")
def approved(project: Project) -> Approved:
    manual = command("push.approve=manual")
    process = project.start(*manual)
    wait_until(lambda: VARIANTS[0] in kept(project), process, pause=0.01)
    process.kill()
    out, errors = process.communicate()
    killed = subprocess.CompletedProcess(manual, process.returncode, out, errors)
    done, summary = project.scopeline(*manual), project.summary("digits")
    (waiting,) = models(project)
    reason = ("--reason", "looked at")
    approval = project.scopeline("approve", str(waiting["version"]), "--config", DIGITS, *reason)
    return Approved(killed, done, summary, waiting, approval, versions(project)[-1])


def report_of(summary: dict[str, Any], name: str) -> dict[str, Any]:
    return next(v for v in summary["variants"]["variants"] if v["name"] == name)


def test_run_that_was_killed_in_a_conversion_goes_on_with_what_is_done(
    project: Project, approved: Approved
) -> None:
    out = plain(approved.done.stdout)
    assert approved.done.returncode == 4, out + approved.done.stderr
    assert "reuses the variant float" in out
    assert "2 variants; accepted: float, int8" in out
    assert kept(project) == []
    states = {c["name"]: c["state"] for c in approved.summary["components"]}
    assert (states["Trainer"], states["Optimizer"]) == ("cached", "ran")


def test_variants_are_measured_beside_their_model(approved: Approved) -> None:
    model = approved.summary["metrics"]["accuracy"]["value"]
    floats, ints = (report_of(approved.summary, name) for name in VARIANTS)
    assert floats["metrics"]["accuracy"] == pytest.approx(model, abs=1e-6)
    assert ints["bytes"] < floats["bytes"]
    assert floats["latency_ratio"] < 1
    assert floats["measured"]["peak_memory_bytes"] < 500e6
    assert floats["metrics"]["example_count"] == 355


def test_model_that_waits_is_pushed_with_its_variants(project: Project, approved: Approved) -> None:
    assert approved.waiting["waits"]
    assert approved.waiting["variants"] == list(VARIANTS)
    assert approved.approval.returncode == 0, approved.approval.stderr
    assert (approved.version / "saved_model.pb").is_file()
    manifest = json.loads((approved.version / "variants" / "manifest.json").read_text())
    ints = report_of(approved.summary, "int8")
    assert manifest["variants"].keys() == set(VARIANTS)
    assert manifest["variants"]["int8"]["metrics"]["accuracy"] == ints["metrics"]["accuracy"]
    assert models(project)[-1]["variants"] == list(VARIANTS)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_loads_where_there_is_only_its_runtime(approved: Approved, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(approved.version / "variants" / name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["heavy"] == []
    assert printed["class"] in list("0123456789")


def test_a_variant_answers_files_as_the_model_does(
    project: Project, approved: Approved, tmp_path: Path
) -> None:
    sevens, tables = project.output / "builtin" / "digits" / "7", []
    for number, variant in enumerate(([], ["--variant", "float"], ["--variant", "int8"])):
        answers = tmp_path / f"answers{number}.csv"
        options = ["--model", approved.version, "--input", sevens, "--output", answers, *variant]
        done = project.scopeline("predict", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        tables.append(list(csv.DictReader(answers.open())))
    model, floats, ints = tables
    assert [row["file"] for row in model] == [row["file"] for row in ints]
    for one, other in zip(model, floats, strict=True):
        assert one["class"] == other["class"]
        assert float(one["score_7"]) == pytest.approx(float(other["score_7"]), abs=1e-5)
    same = sum(a["class"] == b["class"] for a, b in zip(model, ints, strict=True))
    assert same > 0.9 * len(model)


def test_required_variants_that_nobody_can_accept_keep_the_model_back(
    project: Project, approved: Approved
) -> None:
    before = versions(project)
    done = project.scopeline(*command("optimize.required=true", max_latency_ratio=1e-6))
    out = plain(done.stdout)
    assert done.returncode == 3, out + done.stderr
    assert "reuses the variant int8" in out, "another limit converts nothing again"
    assert "not pushed: the required variant float is rejected: the latency" in out
    assert "at most 1e-06 is accepted (optimize.accept.max_latency_ratio)" in out
    assert versions(project) == before
    assert project.states("digits")["Pusher"] == "skipped"


def test_variants_that_are_refused_do_not_block_the_model(
    project: Project, approved: Approved
) -> None:
    done = project.scopeline(*command(variants=("int8",), max_size_ratio=0.251))
    out = plain(done.stdout)
    assert done.returncode == 0, out + done.stderr
    assert "1 variant; accepted: none" in out
    assert "refused int8: the size" in out
    # The same model with other variants is a version of its own.
    assert len(versions(project)) == 2
    assert not (versions(project)[-1] / "variants").exists()
