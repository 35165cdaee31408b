"""Trains the two models that are served in turn, and predicts the requested rows with them."""

from __future__ import annotations

import base64
import csv
import json
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from PIL import Image

from components.pusher.versions import list_versions

ROOT = Path(__file__).parents[2]
NAME = "siege"
PREDICT, INFER = f"/v1/models/{NAME}:predict", f"/v2/models/{NAME}/infer"
HEADER_LENGTH = "Inference-Header-Content-Length"
EPOCHS = {"A": 1, "B": 4}
"""The training epochs of each model, by its mark."""
_CONFIG = """\
name: siege
data: {{format: csv, path: {folder}/things.csv, label: kind, splits: {{train: 1, eval: 1}}}}
task: binary
features:
  photo: {{type: image, from: path, height: 16, width: 16, channels: 1}}
model: {{kind: cnn, filters: [4], hidden_units: [8]}}
train: {{batch_size: 32}}
evaluate: {{thresholds: {{auc: {{min: 0.01}}}}}}
"""
_ROWS, _REQUESTED_ROWS, _SIDE = 400, 8, 16
_MIN_DIFFERENCE = 0.01
"""The minimum difference between the models' scores for a requested row."""
_SECONDS = 300

Start = Callable[..., "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Row:
    """A requested row, and the score of its second class by each model."""

    photo: bytes
    size: float
    colour: str
    scores: dict[str, float]

    def instance(self) -> dict[str, Any]:
        """Returns the row as an instance of TF Serving's REST API."""
        photo = {"b64": base64.b64encode(self.photo).decode()}
        return {"photo": photo, "size": self.size, "colour": self.colour}

    def rest_body(self) -> bytes:
        """Returns the body of a request for `:predict`."""
        content = {"signature_name": "serving_raw", "instances": [self.instance()]}
        return json.dumps(content).encode()

    def tensors(self) -> tuple[bytes, bytes]:
        """Returns the JSON of an Open Inference request, and the bytes that follow it."""
        tail = struct.pack("<I", len(self.photo)) + self.photo
        photo = tensor("photo", "BYTES", parameters={"binary_data_size": len(tail)})
        inputs = [photo, tensor("size", "FP32", [self.size]), tensor("colour", data=[self.colour])]
        return json.dumps({"inputs": inputs}).encode(), tail


def tensor(
    name: str, datatype: str = "BYTES", data: Any = None, shape: Any = (1,), **more: Any
) -> dict[str, Any]:
    """Returns a tensor of Open Inference; without data, the bytes of the tensor follow the JSON."""
    content = {} if data is None else {"data": data}
    return {"name": name, "datatype": datatype, "shape": shape, **content, **more}


@dataclass(frozen=True)
class Models:
    """The served models, and the requested rows."""

    config: Path
    output: Path
    folders: dict[str, Path]
    """The folders of the models, by mark."""
    rows: list[Row]

    @property
    def serving(self) -> Path:
        """The folder of the versions."""
        return self.output / NAME / "serving" / NAME

    def command(self, name: str, *options: str) -> list[str]:
        """Returns a command of local_runner.py for this pipeline."""
        where = ["--config", str(self.config), "--output", str(self.output)]
        return [sys.executable, str(ROOT / "local_runner.py"), name, *where, *options]


def make_models(
    folder: Path, start: Start = subprocess.Popen, epochs: Mapping[str, int] = EPOCHS
) -> Models:
    """Runs a small pipeline for each model, and predicts the rows with each model.

    Args:
      folder: the folder for the data and the output.
      start: the function that starts commands, with the interface of `subprocess.Popen`.
      epochs: the epochs of each model, by its mark.

    Raises:
      RuntimeError: a command failed, or the models' predictions are too similar.
    """
    rows = _write_data(folder)
    config = folder / "siege.yaml"
    config.write_text(_CONFIG.format(folder=folder))
    models = Models(config, folder / "output", {mark: folder / mark for mark in epochs}, [])
    for mark, number in epochs.items():
        _finish(start(models.command("run", "--set", f"train.epochs={number}"), **_quiet(folder)))
        shutil.copytree(list_versions(models.serving)[-1], models.folders[mark])
    scores = _predict(folder, models.folders, start)
    for index, (photo, size, colour) in enumerate(rows):
        row_scores = {mark: model_scores[index] for mark, model_scores in scores.items()}
        pairs = combinations(row_scores.values(), 2)
        difference = min((abs(a - b) for a, b in pairs), default=1.0)
        if difference > _MIN_DIFFERENCE and len(models.rows) < _REQUESTED_ROWS:
            models.rows.append(Row((folder / photo).read_bytes(), float(size), colour, row_scores))
    if len(models.rows) < _REQUESTED_ROWS:
        raise RuntimeError(
            "the predictions of the models are too similar, so answers do not identify a model"
        )
    return models


def _write_data(folder: Path) -> list[tuple[str, str, str]]:
    """Writes pictures of bright round and dark square objects, and a table that refers to them."""
    chance = random.Random(7)  # noqa: S311 - data, no secret
    (folder / "photos").mkdir(parents=True)
    rows = []
    with (folder / "things.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["photo", "size", "colour", "kind"])
        for number in range(_ROWS):
            kind, light, size = chance.choice([("round", 200, 5), ("square", 60, 3)])
            photo = f"photos/{number}.png"
            pixels = (min(max(int(chance.gauss(light, 60)), 0), 255) for _ in range(_SIDE**2))
            Image.frombytes("L", (_SIDE, _SIDE), bytes(pixels)).save(folder / photo)
            colour = chance.choice(["red", "green", "blue"])
            rows.append((photo, f"{chance.gauss(size, 1.5):.2f}", colour))
            writer.writerow([*rows[-1], kind])
    return rows


def _predict(folder: Path, models: dict[str, Path], start: Start) -> dict[str, list[float]]:
    """Returns the score of the second class of each row, by the mark of the model."""
    answers = {mark: folder / f"answers-{mark}.csv" for mark in models}
    running = []
    for mark, model in models.items():
        command = [sys.executable, str(ROOT / "local_runner.py"), "predict", "--model", str(model)]
        command += ["--input", str(folder / "things.csv"), "--output", str(answers[mark])]
        running.append(start(command, **_quiet(folder)))
    for process in running:
        _finish(process)
    found = {}
    for mark, path in answers.items():
        with path.open(newline="") as file:
            found[mark] = [float(row["score_square"]) for row in csv.DictReader(file)]
    return found


def _quiet(folder: Path) -> dict[str, Any]:
    return {
        "cwd": folder,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }


def _finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=_SECONDS)
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {output}")
