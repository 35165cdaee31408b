"""Explanations of models of known formulas: what the label depends on is found, with its size."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from components.evaluator.dependence import INDEPENDENT, Dependence
from components.evaluator.explanation import effects
from components.evaluator.explanation.artifact import read_explanation
from components.evaluator.explanation.explain import try_explain
from components.evaluator.explanation.importances import measure_importances
from components.evaluator.explanation.measures import OTHERS, compute_confusion, compute_curves
from components.evaluator.explanation.prediction import ExplainedModel
from components.evaluator.explanation.record import EXAMPLES_FILE, WorstExamples
from components.evaluator.explanation.sample import Sample
from components.evaluator.explanation.target import Target
from tests.support.exported import PICTURE, Evaluated, write_rows
from trainer_module.export.interface import RawColumn

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


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    columns = {"number": "float32", "city": "string", "noise": "float32"}
    return Evaluated(tmp_path_factory.mktemp("binary"), logistic, columns, weight="weight")


@pytest.fixture(scope="module")
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


def test_calibration_of_a_calibrated_model(explained: Any) -> None:
    calibration = explained[0].calibration
    inside = [
        low <= predicted <= high
        for low, predicted, high in zip(
            calibration.low, calibration.predicted, calibration.high, strict=True
        )
    ]
    assert len(inside) == 10
    assert sum(inside) >= 8
    assert calibration.expected_error < 0.05


def test_importances_find_what_the_label_depends_on(explained: Any) -> None:
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


def test_one_class_in_the_eval_split_has_no_curves(binary: Evaluated) -> None:
    rows = make_rows() | {"label": np.ones(ROWS, int)}
    explanation, worst = binary.explain(rows)
    assert explanation.roc == explanation.precision_recall == []
    assert explanation.suspected_leak is None
    assert len(worst.rows) == 20


def test_rows_of_a_group_widen_the_intervals(binary: Evaluated) -> None:
    rows = make_rows()
    first = np.arange(ROWS) // 100 * 100
    same = {name: rows[name][first] for name in ("number", "city", "label")}
    alone, _ = binary.explain(rows | same)
    grouped, _ = binary.explain(rows | same, Dependence(group_by="group"))
    width = {
        name: found.importances[0].high - found.importances[0].low
        for name, found in (("alone", alone), ("grouped", grouped))
    }
    assert alone.importances[0].increase == grouped.importances[0].increase
    assert width["grouped"] > 3 * width["alone"]


def test_a_copy_of_the_label_is_suspected(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    label = random.integers(0, 2, ROWS)
    rows = {
        "copy": label + 0.01 * random.normal(size=ROWS),
        "other": random.normal(size=ROWS) + label,
        "label": label,
    }
    formula = lambda c: tf.sigmoid(12 * c["copy"] - 6 + 0.3 * c["other"])[:, tf.newaxis]  # noqa: E731
    model = Evaluated(tmp_path, formula, {"copy": "float32", "other": "float32"})
    explanation, _ = model.explain(rows)
    assert explanation.suspected_leak == "copy"
    (note,) = explanation.notes
    assert note.startswith("'copy' alone carries ")
    assert note.endswith("set its type to `ignore` in `features`")


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


class Slow(ExplainedModel):
    """A formula, as fast as the test says."""

    def __init__(self, formula: Any, target: Target, rows_per_second: float) -> None:
        self._formula, self.target, self.batch_rows = formula, target, 1024
        self._speed, self._rows, self._seconds = rows_per_second, 0, 0.0

    @property
    def rows_per_second(self) -> float:
        return self._speed

    def _predict(self, columns: Any) -> np.ndarray:
        return np.asarray(self._formula(columns))


def make_wide(columns: int) -> tuple[Any, Sample]:
    random = np.random.default_rng(0)
    values = {f"c{number}": random.normal(size=300) for number in range(columns)}
    formula = lambda c: (3 * c["c77"] + 2 * c["c4321"])[:, np.newaxis]  # noqa: E731
    outputs = formula(values)
    labels = outputs[:, 0] + 0.1 * random.normal(size=300)
    return formula, Sample(values, labels, np.ones(300), np.arange(300), outputs)


def test_the_strongest_of_5000_columns_are_found_in_groups() -> None:
    formula, sample = make_wide(5000)
    model = Slow(formula, Target("regression", "label", ()), 2_500)
    found = measure_importances(model, sample, 20.0, 0)
    assert [one.column for one in found.columns[:2]] == ["c77", "c4321"]
    assert "5,000 columns would take too long one by one" in found.notes[0]


def test_a_slow_model_has_no_importances_and_a_note() -> None:
    formula, sample = make_wide(5000)
    model = Slow(formula, Target("regression", "label", ()), 20)
    found = measure_importances(model, sample, 1.0, 0)
    assert found.columns == []
    assert found.notes == ["no importances: the model predicts only 20 rows per second"]


def test_many_classes_are_capped() -> None:
    random, count = np.random.default_rng(0), 3000
    classes = tuple(map(str, range(count)))
    labels = random.integers(0, count, 2000)
    predicted = np.where(random.random(2000) < 0.5, labels, random.integers(0, count, 2000))
    predicted[:50], labels[:50] = 7, 8
    outputs = np.zeros((2000, count), np.float32)
    outputs[np.arange(2000), predicted] = 1
    sample = Sample({}, labels, np.ones(2000), np.arange(2000), outputs)
    confusion = compute_confusion(sample, classes)
    assert len(confusion.classes) == 21
    assert {"7", "8", OTHERS} <= set(confusion.classes)
    assert np.sum(confusion.counts) == 2000
    assert len(compute_curves(sample, classes)[0]) == 10


def test_a_model_that_cannot_be_explained_is_a_notice(
    binary: Evaluated, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    binary.explain(make_rows())
    Path(binary.folder, "saved_model.pb").rename(tmp_path / "elsewhere.pb")
    with caplog.at_level(logging.WARNING):
        try_explain(binary.files, binary.folder, binary.schema, INDEPENDENT, str(tmp_path))
    (tmp_path / "elsewhere.pb").rename(Path(binary.folder, "saved_model.pb"))
    (notice,) = [record.message for record in caplog.records if hasattr(record, "notice")]
    assert notice.startswith("the model was evaluated, but not explained: ")
    assert "`evaluate: {explain: false}` leaves the explanation out" in notice
    assert read_explanation(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("explain.measure_importances", "importances"),
        ("explain.measure_effects", "effects of columns"),
        ("explain.compute_confusion", "confusion matrix"),
        ("explain.find_worst_examples", "worst examples"),
        ("examples._add_words", "shares of words"),
    ],
)
def test_a_part_fails_alone(
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
    assert notices == [
        f"the explanation lacks {part} (ValueError: no such op). The log has the details"
    ]
    made = {
        "importances": explanation.importances,
        "effects of columns": explanation.effects,
        "confusion matrix": explanation.confusion,
        "worst examples": worst.rows,
        "calibration": explanation.calibration,
        "curves": explanation.roc,
    }
    assert {name for name, found in made.items() if not found} == {part} & made.keys()


def test_files_of_an_explanation(binary: Evaluated, tmp_path: Path) -> None:
    binary.explain(make_rows())
    try_explain(binary.files, binary.folder, binary.schema, INDEPENDENT, str(tmp_path))
    explanation = read_explanation(str(tmp_path))
    assert explanation is not None
    assert explanation.seconds < 5
    assert "Oslo" not in explanation.model_dump_json(exclude={"effects"})
    assert len(json.loads((tmp_path / EXAMPLES_FILE).read_text())["rows"]) == 20


def test_an_effect_leaves_out_infinite_numbers() -> None:
    column = RawColumn("a", "a", "float32", is_whole=False, width=1)
    values = np.array([np.inf, -np.inf, 1, 2, np.nan] * 10, np.float32)
    grid = effects._choose_values(values, column)
    np.testing.assert_equal(grid, [1, 2, np.nan])
    assert effects._count(values, grid).tolist() == [10, 10, 10]
