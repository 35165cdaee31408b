"""Our side: a run of the pipeline with a config of a few lines, as a user begins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.models.job import Job, megabytes
from benchmarks.models.measuring import Trained
from components.example_gen.columns.tensors import to_request
from components.serving.batch.reading import Input, read_blocks
from components.serving.model import Model, load_model
from components.serving.requests import join_rows
from pipeline.config.loading import load_config
from pipeline.runs.run import run_pipeline
from trainer_module.settings.model import AUTO

TUNED = "tuned"
"""The default model with the values that `tune: auto` finds."""

_NAME = "model"
_TRAINING = ("Tuner", "Trainer")
_HARMLESS = (0, 3)
"""The exit codes of runs that trained a model; 3 means that it was not blessed."""


def train(job: Job, kind: str) -> Trained:
    """Trains a model with its defaults.

    Args:
      job: the rows and the task.
      kind: a kind of model, or `TUNED`.

    Raises:
      RuntimeError: a component failed.
    """
    root = job.scratch(f"{kind}-output")
    config = Path(job.folder, f"{kind}.yaml")
    config.write_text(yaml.safe_dump(_config(job, kind)))
    code = run_pipeline(load_config(config), root).exit_code
    layout = root / _NAME
    summary = json.loads(max((layout / "runs").glob("*/summary.json")).read_text())
    if code not in _HARMLESS:
        raise RuntimeError(f"{summary['status']}: {summary.get('error')}")
    # A model that was not blessed is not pushed; the Trainer's is the same.
    folder = next((layout / "pipeline_root" / "Trainer" / "model").glob("*/Format-Serving"))
    model = load_model(folder)
    seconds = {part["name"]: part["seconds"] for part in summary["components"]}
    output = "value" if job.is_regression else "scores"
    return Trained(
        rows=_read(job.test, model),
        take=lambda rows, indices: {name: column[indices] for name, column in rows.items()},
        predict=lambda rows: model.predict(rows)[output],
        megabytes=megabytes(folder),
        classes=model.interface.classes,
        train_seconds=sum(seconds.get(name, 0.0) for name in _TRAINING),
        notes=summary["training"]["notes"],
    )


def _config(job: Job, kind: str) -> dict[str, Any]:
    """Returns the config: the files, the label and the task, and what the comparison needs."""
    splits: dict[str, Any] = {"splits": {"train": "train.csv", "eval": "evaluation.csv"}}
    if job.dates:
        splits = {"order_by": job.dates[0]}  # The newest fifth of the rows is evaluated.
    config: dict[str, Any] = {
        "name": _NAME,
        "data": {"format": "csv", "path": str(job.ours), "label": job.label, **splits},
        "task": job.task,
        "train": {"seed": job.seed},
        "certificate": False,
    }
    if kind == TUNED:
        config["tune"] = {"auto": True, "timeout": f"{job.seconds}s"}
    elif kind != AUTO:
        config["model"] = {"kind": kind}
    return config


def _read(path: Path, model: Model) -> dict[str, np.ndarray]:
    """Returns the rows of a file as the request to a served model."""
    blocks = read_blocks(Input((os.fspath(path),), "csv"), model.interface)
    parts = [
        to_request(block.rows, block.first, model.interface)
        for block in blocks
        if block.rows is not None
    ]
    return join_rows(parts)
