"""The default model of tables compared with scikit-learn on many tables; `make bench-models`.

Each table is split into 64 % for training, 16 % from which the default model selects its best
epoch, and 20 % for the evaluation. A seed determines the split and the models; the printed values
are medians over the seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tf_keras
from rich.console import Console
from sklearn.metrics import accuracy_score, roc_auc_score

from benchmarks.models.ours import transform
from benchmarks.models.peers import predictions
from benchmarks.models.report import Score, as_table
from benchmarks.models.tables import TABLES, Rows, Table
from trainer_module.settings import Task


def measure(table: Table, kinds: list[str], seeds: int, search_seconds: int) -> Score:
    """Returns the medians over the seeds, of our models by kind and of the peers."""
    values: dict[str, list[float]] = {}
    seconds = []
    rows = table.rows()
    for seed in range(1, seeds + 1):
        shuffled = random.Random(seed).sample(rows, len(rows))  # noqa: S311
        count = len(rows) // 5
        test, rest = shuffled[:count], shuffled[count:]
        evaluation, train = rest[: len(rest) // 5], rest[len(rest) // 5 :]
        with tempfile.TemporaryDirectory(prefix="scopeline-") as folder:
            ours = transform(table, train, evaluation, Path(folder))
            found = predictions(table, ours.numbers, train, test, seed)
            for kind in kinds:
                begun = time.monotonic()
                found[kind] = ours.predict(kind, seed, test, search_seconds)
                seconds.append(time.monotonic() - begun)
                tf_keras.backend.clear_session()
        for name, predicted in found.items():
            values.setdefault(name, []).append(score(table, train, test, predicted))
    medians = {name: statistics.median(found) for name, found in values.items()}
    return Score(table, len(rows), medians, statistics.median(seconds))


def score(table: Table, train: Rows, test: Rows, predicted: np.ndarray) -> float:
    """Returns the AUC for two classes, the accuracy for more, or the root mean squared error."""
    labels = [row[table.label] for row in test]
    if table.task is Task.REGRESSION:
        return float(np.sqrt(np.mean((np.array(labels, float) - predicted.ravel()) ** 2)))
    classes = sorted({row[table.label] for row in train})
    if table.task is Task.BINARY:
        return float(roc_auc_score([label == classes[1] for label in labels], predicted[:, 1]))
    return float(accuracy_score(labels, [classes[i] for i in predicted.argmax(1)]))


def main() -> None:
    """Runs the tables that the options specify, and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=len(TABLES), help="the number of tables")
    parser.add_argument("--only", nargs="*", help="the names of the tables")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--models", nargs="*", default=["auto"], help="the kinds of models, or `tuned`"
    )
    parser.add_argument(
        "--search-seconds", type=int, default=300, help="the seconds of each search of `tuned`"
    )
    parser.add_argument("--json", type=Path, help="a file for the scores")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    console, scores = Console(), []
    for table in TABLES[: options.tables]:
        if options.only and table.name not in options.only:
            continue
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            scores.append(measure(table, options.models, options.seeds, options.search_seconds))
        console.print(scores[-1].line(options.models), highlight=False)
        if options.json:
            options.json.write_text(json.dumps([s.as_json() for s in scores], indent=1))
    console.print(as_table(scores, options.models))


if __name__ == "__main__":
    main()
