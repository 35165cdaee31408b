"""The confusion matrix of a whole evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.runs.evaluation_report import (
    describe_mistakes,
    read_mistakes,
)
from tests.support.evaluation_artifacts import (
    HALF,
    ROWS,
    Measured,
    config_of,
    measure,
    write_examples,
)
from tests.support.evaluation_artifacts import write_model as write
from trainer_module.export.interface import INTERFACE_FILE, ModelInterface

pytestmark = pytest.mark.slow

OF_FIRST, OF_SECOND = 0.6, 0.7
"""Predictions of the new model by the class of a row."""


def scores(rows: dict[int, int], confidence: list[float]) -> np.ndarray:
    """[rows, 3]: probabilities of the classes: right, but for some rows."""
    shown = np.array([rows.get(row, int(row >= HALF)) for row in range(ROWS)])
    rest = (1 - np.array(confidence)) / 2
    return np.where(np.eye(3)[shown] == 1, np.array(confidence)[:, np.newaxis], rest[:, np.newaxis])


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Of the first class three rows are taken for the third, of the second one for the first."""
    folder = tmp_path_factory.mktemp("mistaken")
    confidence = [OF_FIRST] * HALF + [OF_SECOND] * HALF
    new = scores({0: 2, 1: 2, 2: 2, HALF: 0}, confidence).T
    old = scores(dict.fromkeys(range(ROWS), 1), confidence).T
    columns = {f"new{i}": values.tolist() for i, values in enumerate(new)}
    columns |= {f"old{i}": values.tolist() for i, values in enumerate(old)}
    examples = write_examples(folder, **columns)
    models = [write(folder, f"{n}0", f"{n}1", f"{n}2", task="multiclass") for n in ("new", "old")]
    metrics = ["accuracy", "confusion_matrix", "calibration_curve", "calibration_error"]
    config = config_of({"metrics": metrics, "slices": ["plan"]}, task="multiclass")
    return measure(folder / "measured", config, examples, *models)


def test_the_worst_pairs_are_those_of_the_new_model(mistaken: Measured, tmp_path: Path) -> None:
    assert [
        (one.true, one.predicted, one.rows, one.total) for one in read_mistakes(mistaken.uri)
    ] == [
        (0, 2, 3, HALF),
        (1, 0, 1, HALF),
    ]
    shown = describe_mistakes(mistaken.uri, None)
    assert shown == (
        "most frequent confusions: class 0 as class 2 (3 of 12), class 1 as class 0 (1 of 12)"
    )
    path = tmp_path / "Format-Serving" / INTERFACE_FILE
    path.parent.mkdir(parents=True)
    interface = ModelInterface((), "label", "string", "multiclass", classes=("cat", "dog", "fox"))
    path.write_text(interface.to_json())
    shown = describe_mistakes(mistaken.uri, str(tmp_path))
    assert shown == "most frequent confusions: cat as fox (3 of 12), dog as cat (1 of 12)"
