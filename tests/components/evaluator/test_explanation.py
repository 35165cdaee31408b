"""Explanations of models of known formulas: importances, effects, curves and worst examples."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from components.evaluator.dependence import INDEPENDENT
from components.evaluator.explanation.artifact import read_explanation
from components.evaluator.explanation.explain import try_explain
from components.evaluator.explanation.record import EXAMPLES_FILE, WorstExamples
from tests.support.exported import PICTURE, Evaluated, write_rows

ROWS = 1500


def logistic(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Of a number that may be missing, a city, and noise that the label does not depend on."""
    number = tf.where(tf.math.is_nan(features["number"]), -1.0, features["number"])
    in_city = tf.cast(features["city"] == "Oslo", tf.float32)
    logit = 2 * number + 1.5 * in_city - 1 + 0.2 * features["noise"]
    return tf.sigmoid(logit)[:, tf.newaxis]


def make_rows(seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    number = np.where(random.random(ROWS) < 0.1, np.nan, random.normal(size=ROWS))
    city = random.choice(np.array([b"Oslo", b"Bergen", b""], object), ROWS)
    logit = 2 * np.where(np.isnan(number), -1, number) + 1.5 * (city == b"Oslo") - 1
    label = (random.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(int)
    noise, weight = random.normal(size=ROWS), random.integers(0, 3, ROWS).astype(float)
    return {
        "number": number,
        "city": city,
        "noise": noise,
        "label": label,
        "weight": weight,
        "group": np.arange(ROWS) // 100,
    }


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    columns = {"number": "float32", "city": "string", "noise": "float32"}
    return Evaluated(tmp_path_factory.mktemp("binary"), logistic, columns, weight="weight")


@pytest.fixture(scope="session")
def explained(binary: Evaluated) -> tuple[Any, Any, dict[str, np.ndarray]]:
    rows = make_rows()
    return *binary.explain(rows), rows


def predict(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    features = {
        name: tf.constant(rows[name], dtype)
        for name, dtype in (("number", tf.float32), ("city", tf.string), ("noise", tf.float32))
    }
    return np.asarray(logistic(features))[:, 0]


def test_weighted_curves_and_loss_are_those_of_scikit_learn(explained: Any) -> None:
    explanation, _, rows = explained
    scores, weights = predict(rows), rows["weight"]
    assert explanation.rows == explanation.of == ROWS
    (roc,), (precision_recall,) = explanation.roc, explanation.precision_recall
    assert roc.label == "yes"
    assert roc.area == pytest.approx(roc_auc_score(rows["label"], scores, sample_weight=weights))
    average = average_precision_score(rows["label"], scores, sample_weight=weights)
    assert precision_recall.area == pytest.approx(average)
    # The points that are left give the same area.
    assert np.trapezoid(roc.y, roc.x) == pytest.approx(roc.area, abs=1e-3)
    assert len(roc.thresholds) == len(roc.x)
    middle = len(roc.x) // 2
    found = np.average(scores >= roc.thresholds[middle], weights=weights * rows["label"])
    assert roc.y[middle] == pytest.approx(found, abs=0.01)
    loss = log_loss(rows["label"], scores, sample_weight=weights)
    assert explanation.loss_value == pytest.approx(loss, rel=1e-5)
    assert np.sum(explanation.confusion.counts) == pytest.approx(weights.sum())


def test_importances_are_those_of_the_formula(explained: Any) -> None:
    explanation, _, _ = explained
    number, city, noise = explanation.importances
    assert [number.column, city.column, noise.column] == ["number", "city", "noise"]
    assert city.low > 0
    assert number.low > city.high
    assert noise.low < 0 < noise.high
    assert number.share + city.share + noise.share == pytest.approx(1, abs=0.05)
    assert explanation.suspected_leak is None


def test_effects_follow_the_formula(explained: Any) -> None:
    effects = {effect.column: effect for effect in explained[0].effects}
    number, city = effects["number"], effects["city"]
    assert number.is_numeric
    assert number.values[-1] is None  # Missing numbers count as -1.
    assert number.output == "probability of yes"
    assert np.all(np.diff(number.values[:-1]) > 0)
    assert np.all(np.diff(number.answers[:-1]) > 0)
    nearest = int(np.argmin(np.abs(np.array(number.values[:-1]) + 1)))
    assert number.answers[-1] == pytest.approx(number.answers[nearest], abs=0.08)
    assert sum(number.rows) == ROWS
    by_city = dict(zip(city.values, city.answers, strict=True))
    assert set(by_city) == {"Oslo", "Bergen", None}
    assert by_city["Oslo"] - by_city["Bergen"] > 0.1
    assert by_city["Bergen"] == pytest.approx(by_city[None])


def test_worst_examples_have_the_largest_losses_and_shares_that_add_up(explained: Any) -> None:
    _, worst, rows = explained
    scores = predict(rows)
    losses = -np.log(np.where(rows["label"] == 1, scores, 1 - scores))
    expected = np.sort(losses[rows["weight"] > 0])[::-1][:20]
    np.testing.assert_allclose([row.loss for row in worst.rows], expected, rtol=1e-4)
    for row in worst.rows:
        assert set(row.values) == {"number", "city", "noise"}
        of_label = np.exp(-row.loss)
        answer = of_label if row.label == "yes" else 1 - of_label
        assert sum(share.share for share in row.shares) + worst.base == pytest.approx(answer)


def test_a_regression_has_residuals_and_no_text_has_an_effect(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    number, error = random.normal(size=(2, ROWS))
    texts = [f"row {one} of <b>many</b> {'x' * 300}".encode() for one in range(ROWS)]
    words = np.array(texts, object)
    rows = {"number": number, "words": words, "label": 3 * number + error}

    def formula(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        length = tf.cast(tf.strings.length(features["words"]), tf.float32)
        return (3 * features["number"] + 0.001 * length)[:, tf.newaxis]

    columns = {"number": "float32", "words": "string"}
    explanation, worst = Evaluated(tmp_path, formula, columns, "regression", ()).explain(rows)
    # A permuted column with variance 1 and slope 3 adds twice 9 to the squared error.
    importance = explanation.importances[0]
    assert importance.low < 18 < importance.high
    assert (explanation.loss, explanation.output) == ("mse", "label")
    assert sum(explanation.residuals.errors.counts) == ROWS
    assert len(explanation.residuals.predicted) == 500
    assert [effect.column for effect in explanation.effects] == ["number"]
    assert len(worst.rows[0].values["words"]) == 200
    assert worst.rows[0].words
    assert explanation.calibration is explanation.confusion is None


def test_pictures_have_thumbnails_and_saliency(tmp_path: Path) -> None:
    random, pictures = np.random.default_rng(0), []
    for pixels in random.integers(0, 255, (60, *PICTURE[:2]), np.uint8):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        pictures.append(file.getvalue())
    rows = {"picture": np.array(pictures, object), "label": random.integers(0, 2, 60)}
    formula = lambda c: tf.reduce_mean(c["picture"][:, :4, :4], [1, 2])  # noqa: E731
    model = Evaluated(tmp_path, formula, {"picture": "string"})
    worst = model.explain(rows)[1].rows[0]
    assert worst.values == {}
    assert base64.b64decode(worst.images["picture"]).startswith(b"\x89PNG")
    with Image.open(io.BytesIO(base64.b64decode(worst.saliency["picture"]))) as strength:
        pixels = np.asarray(strength)
    # Only the upper left quarter counts; a patch has parts of two pixels.
    assert pixels[:4, :4].max() == 255
    assert pixels[5:].max() == pixels[:, 5:].max() == 0


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("explain.measure_importances", "importances"),
    ],
)
def test_failed_part_leaves_the_other_parts(
    function: str,
    part: str,
    binary: Evaluated,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such op")

    monkeypatch.setattr(f"components.evaluator.explanation.{function}", fail)
    write_rows(binary.files[0], make_rows())
    with caplog.at_level(logging.WARNING):
        try_explain(binary.files, binary.folder, binary.schema, INDEPENDENT, str(tmp_path))
    explanation = read_explanation(str(tmp_path))
    assert explanation is not None
    worst = WorstExamples.model_validate_json((tmp_path / EXAMPLES_FILE).read_text())
    assert explanation.failures == {part: "ValueError: no such op"}
    notices = [record.message for record in caplog.records if hasattr(record, "notice")]
    assert [part in notice for notice in notices] == [True]
    made = {
        "importances": explanation.importances,
        "effects of columns": explanation.effects,
        "confusion matrix": explanation.confusion,
        "worst examples": worst.rows,
        "calibration": explanation.calibration,
        "curves": explanation.roc,
    }
    assert {name for name, found in made.items() if not found} == {part} & made.keys()
