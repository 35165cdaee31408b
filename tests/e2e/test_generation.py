"""`task: generation` from pictures to a pushed generator, and one that learnt black pictures."""

from __future__ import annotations

import base64
import csv
import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.support.project import Project

pytestmark = pytest.mark.slow

CONFIG = {
    "name": "shades",
    "data": {"format": "images", "path": "pictures", "splits": {"train": 7, "eval": 3}},
    "task": {"kind": "generation", "conditional": True, "noise": 8, "collapse": 0.001},
    "features": {"image": {"type": "image", "height": 8, "width": 8, "channels": 1}},
    "model": {"kind": "dcgan", "options": {"filters": [8]}},
    "train": {"epochs": 6, "batch_size": 16, "learning_rate": 0.01},
    "evaluate": {"thresholds": {"frechet_distance": {"max": 1e6}}},
    "certificate": {"timeout": "5m"},
}


def write_pictures(folder: Path, is_black: bool = False) -> None:
    """Writes light and dark pictures, or such under the same names that are as good as black."""
    random = np.random.default_rng(0)
    for name, shade in (("dark", 40), ("light", 180)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(60):
            pixels = random.integers(0, 3, (8, 8)) if is_black else random.integers(0, 60, (8, 8))
            pixels = (pixels + shade * (not is_black)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.fixture(scope="module")
def generation(project: Project) -> Project:
    """A project with a generator that is pushed."""
    write_pictures(project.folder / "pictures")
    (project.folder / "shades.yaml").write_text(yaml.safe_dump(CONFIG))
    done = project.scopeline("run", "--config", "shades.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_the_generator_is_measured_certified_and_pushed(generation: Project) -> None:
    summary = generation.summary("shades")
    metrics = summary["metrics"]
    assert metrics["frechet_distance"]["interval"]
    assert {"recall", "mode_coverage", "copies", "class_accuracy"} <= metrics.keys()
    ways = summary["certificate"]["ways"].keys()
    assert ways == {"serving_raw", "rest", "open_inference", "predict"}
    assert len(generation.versions("shades")) == 1


def predict(generation: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Asks the version that is pushed."""
    return generation.scopeline("predict", "--config", "shades.yaml", *arguments)


def test_pictures_are_generated(generation: Project) -> None:
    done = predict(generation, "--n", "6", "--class", "light", "--output", "new")
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted((generation.folder / "new").iterdir())
    assert [file.name for file in files] == [*(f"000{n}.png" for n in range(6)), "grid.png"]
    assert Image.open(files[0]).size == (8, 8)
    (generation.folder / "rows.csv").write_text("seed,number,label\n0,0,light\n0,5,light\n")
    done = predict(generation, "--input", "rows.csv", "--output", "answers.csv")
    assert done.returncode == 0, done.stdout + done.stderr
    with (generation.folder / "answers.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    for row, file in zip(rows, (files[0], files[5]), strict=True):
        picture = Image.open(io.BytesIO(base64.b64decode(row["png_base64"])))
        assert picture.tobytes() == Image.open(file).tobytes()
    done = predict(generation, "--n", "6", "--class", "grey", "--output", "other")
    assert done.returncode == 2
    assert (
        "--class grey: the model does not have this class; its classes are dark, light"
        in done.stderr
    )
    assert not (generation.folder / "other").exists()
