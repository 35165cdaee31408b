"""Runs a model on a job, in a process of its own, and scores its predictions."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import numpy as np
from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score

from benchmarks.models import peers
from benchmarks.models.environments import ENVIRONMENTS, ROOT
from benchmarks.models.job import Job, read_rows
from benchmarks.models.measuring import Outcome, Trained, measure

PEERS: dict[str, Callable[[Job], Trained]] = {
    "linear": peers.train_linear,
    "boosting": peers.train_boosting,
    "ydf": peers.train_ydf,
    "words": peers.train_words,
    "characters": peers.train_characters,
}
SPARE_SECONDS = 1800
"""The seconds in addition to the limit of a job after which a process is ended."""


def is_ours(model: str) -> bool:
    """Returns whether a model is one of Scopeline's."""
    return model not in PEERS and model not in ENVIRONMENTS


def run_model(job: Job, model: str) -> Outcome:
    """Trains and measures a model.

    Raises:
      RuntimeError: the model could not be trained; the message is its last line.
    """
    outcome, log = Path(job.folder, f"{model}.json"), Path(job.folder, f"{model}.log")
    limit = job.seconds + SPARE_SECONDS
    if model in ENVIRONMENTS:
        command = ENVIRONMENTS[model].command(job.save(), outcome)
        modules = {**os.environ, "PYTHONPATH": str(ROOT)}
        with log.open("w") as output, suppress(subprocess.TimeoutExpired):
            # Peers write files into the current folder.
            subprocess.run(
                command, cwd=job.folder, env=modules, stdout=output, stderr=output, timeout=limit
            )
    else:
        if is_ours(model):
            _import_pipeline()
        # A fork spares each model the imports.
        child = multiprocessing.get_context("fork").Process(
            target=_measure_here, args=(job, model, outcome, log)
        )
        child.start()
        child.join(limit)
        child.kill()
    if not outcome.exists():
        lines = [line.strip() for line in log.read_text().splitlines() if line.strip()]
        raise RuntimeError(lines[-1] if lines else "the process ended without a message")
    return Outcome.load(outcome)


@cache
def _import_pipeline() -> None:
    """Imports TFX and TensorFlow once, for all processes that are forked later."""
    from pipeline.runs.imports import frozen_imports

    with frozen_imports():
        import pipeline.runs.execution  # noqa: F401


def _measure_here(job: Job, model: str, outcome: Path, log: Path) -> None:
    """Trains and measures a model in this process, whose output goes to a file."""
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    if is_ours(model):
        from benchmarks.models import ours

        train: Callable[[Job], Trained] = partial(ours.train, kind=model)
    else:
        train = PEERS[model]
    measure(job, train).save(outcome)


def score(job: Job, outcome: Outcome) -> tuple[float, float | None]:
    """Returns the AUC for two classes, the accuracy for more, or the root mean squared error.

    The second value is the mean absolute error, or None for classes.
    """
    labels = [row[job.label] for row in read_rows(job.test)]
    predicted = np.asarray(outcome.predictions)
    if job.is_regression:
        wanted, found = np.array(labels, float), predicted.ravel()
        error = float(np.sqrt(np.mean((wanted - found) ** 2)))
        return error, float(mean_absolute_error(wanted, found))
    if job.task == "binary":
        positive = max(outcome.classes)
        scores = predicted[:, outcome.classes.index(positive)]
        return float(roc_auc_score([label == positive for label in labels], scores)), None
    chosen = [outcome.classes[i] for i in predicted.argmax(1)]
    return float(accuracy_score(labels, chosen)), None
