"""Pictures that a table names, changed at random while a model is trained: to a pushed model."""

from __future__ import annotations

import json
import shutil

import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits

from tests.support.project import Project, plain

pytestmark = pytest.mark.slow

CONFIG = {
    "name": "scans",
    "data": {"format": "csv", "path": "tables/scans.csv", "label": "digit"},
    "task": "multiclass",
    "features": {
        "scan": {
            "type": "image",
            "from": "path",
            "folder": "photos",
            "height": 16,
            "width": 16,
            "channels": 1,
        },
        "ink": {"type": "numeric"},
    },
    "model": {"kind": "cnn", "filters": [8, 16]},
    "train": {
        "epochs": 15,
        "batch_size": 16,
        "learning_rate": 0.005,
        "augment": {"rotate": 0.03, "shift": 0.08, "zoom": 0.1, "mixup": 0.2},
    },
    "evaluate": {"thresholds": {"accuracy": {"min": 0.7}}},
}


@pytest.fixture(scope="module")
def screen(project: Project) -> str:
    """What a run showed; of 300 digits, some of which are GIF and WEBP."""
    digits = load_digits()
    rows = ["scan,ink,digit"]
    for number in range(300):
        kind = ("png", "gif", "webp")[number % 30 if number % 30 < 3 else 0]
        path = project.folder / "photos" / str(number % 7) / f"{number}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[number] * 15.9).astype("uint8")
        options = {"lossless": True} if kind == "webp" else {}
        Image.fromarray(pixels).save(path, **options)
        name = path.relative_to(project.folder / "photos")
        rows.append(f"{name},{pixels.mean():.2f},d{digits.target[number]}")
    (project.folder / "tables").mkdir()
    (project.folder / "tables" / "scans.csv").write_text("\n".join(rows))
    (project.folder / "scans.yaml").write_text(json.dumps(CONFIG))
    done = project.scopeline("run", "--config", "scans.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return plain(done.stdout)


def test_it_is_pushed_and_takes_pictures_for_paths(project: Project, screen: str) -> None:
    assert "20 pictures were converted to PNG" in screen.replace("\n", " ")
    (version,) = project.versions("scans")
    model = tf.saved_model.load(str(project.output / "scans/serving/scans" / version))
    signature = model.signatures["serving_raw"]
    scan = (project.folder / "photos" / "3" / "10.png").read_bytes()
    answer = signature(scan=tf.constant([scan]), ink=tf.constant([70.0]))
    again = signature(scan=tf.constant([scan]), ink=tf.constant([70.0]))
    assert answer["scores"].shape == (1, 10)
    assert answer["scores"].numpy().tolist() == again["scores"].numpy().tolist(), "not augmented"


def test_a_picture_that_changes_is_read_again(project: Project, screen: str) -> None:
    del screen
    arguments = ("plan", "--config", "scans.yaml")
    assert "nothing to do" in project.scopeline(*arguments).stdout
    photos = project.folder / "photos"
    shutil.copy(photos / "3" / "10.png", photos / "4" / "11.png")
    assert "ExampleGen        runs" in project.scopeline(*arguments).stdout


def test_a_missing_picture_ends_the_run_before_any_component(project: Project, screen: str) -> None:
    del screen
    (project.folder / "photos" / "3" / "10.png").unlink()
    done = project.scopeline("run", "--config", "scans.yaml")
    assert done.returncode == 2
    assert "contains the path" in done.stdout + done.stderr
    assert "in row 12 of" in (done.stdout + done.stderr).replace("\n", " ")
