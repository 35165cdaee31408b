"""Odd data in an evaluation: what is said of it, and that it does not decide by itself."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfx.types import Artifact, artifact_utils, standard_artifacts

from components.evaluator.batched.accumulator import MAX_REPORTED_SLICES
from components.evaluator.intervals import read_intervals
from components.user_errors import find_user_error
from pipeline.records.summary import EvaluationReport
from pipeline.runs.evaluation_report import read_evaluation
from tests.support.evaluation_artifacts import Measured, config_of, measure, write_model

Row = dict[str, Any]


def write_rows(
    folder: Path, rows: Sequence[Row], backwards: bool = False, split: str = "eval"
) -> Artifact:
    """Examples of rows: text, whole numbers and floats; what a row lacks is missing.

    Protobuf writes the features of an example in any order: `backwards` is another than the usual.
    """
    path = folder / "examples" / f"Split-{split}" / "data.gz"
    path.parent.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for row in rows:
            features = []
            for name, value in sorted(row.items(), reverse=backwards):
                example = tf.train.Example()
                feature = example.features.feature[name]
                if isinstance(value, float):
                    feature.float_list.value.append(value)
                elif isinstance(value, int):
                    feature.int64_list.value.append(value)
                else:
                    feature.bytes_list.value.append(value.encode())
                features.append(example.SerializeToString())
            writer.write(b"".join(features))  # To protobuf, one message with all of them.
    examples = standard_artifacts.Examples()
    examples.uri = str(folder / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
    return examples


def row(number: int, **more: Any) -> Row:
    """A row that a model with the scores `good` is right on."""
    label = number % 2
    return {"label": label, "good": 0.9 if label else 0.1 + number / 1000, "plan": "gold", **more}


def report_of(measured: Measured) -> EvaluationReport:
    return read_evaluation(measured.uri, measured.config.criteria, measured.blessed)


OWN = "tf_keras.metrics.BinaryIoU"
SLICED = {"metrics": ["accuracy"], "thresholds": {"auc": {"min": 0.6, "slices": True}}}


def test_a_label_that_is_missing_is_named(tmp_path: Path) -> None:
    rows = [row(number) for number in range(40)]
    del rows[7]["label"]
    examples = write_rows(tmp_path, rows)
    config = config_of({"thresholds": {"auc": {"min": 0.5}}})
    good = write_model(tmp_path, "good")
    with pytest.raises(Exception, match="label") as raised:
        measure(tmp_path / "measured", config, examples, good, good)
    error = find_user_error(raised.value)
    assert str(error).startswith("the eval split has rows whose label cannot be read: Feature: la")
    assert str(error).endswith("(data.unlabelled: skip).")
    assert not list(tmp_path.glob("measured/blessing/*BLESSED"))


def test_slices_of_one_class_and_values_of_megabytes_hold_nobody_up(tmp_path: Path) -> None:
    rows = [row(number) for number in range(40)]
    rows += [row(number, plan="free") for number in range(1, 41, 2)]
    rows += [row(number, plan="x" * (10 << 20)) for number in range(2)]
    examples, good = write_rows(tmp_path, rows), write_model(tmp_path, "good")
    config = config_of({**SLICED, "slices": ["plan"]})
    report = report_of(measure(tmp_path / "measured", config, examples, good))
    assert report.blessed, report.reason
    assert set(report.slices) == {"plan=gold", "plan=free"}
    assert math.isnan(report.slices["plan=free"]["auc"])
    assert report.slices["plan=free"]["accuracy"] == 1.0
    assert report.notes == [
        "evaluate.slices: the slices by plan leave out 2 rows, because their values have up to "
        "10,485,760 bytes; at most 1,000 bytes are possible",
        "auc is undefined on plan=free, and has no threshold there",
    ]


def test_a_bad_slice_is_held_by_a_threshold_of_slices(tmp_path: Path) -> None:
    rows = [row(number) for number in range(400)]
    rows += [row(n, plan="free") | {"good": 0.9 - 0.8 * (n % 2)} for n in range(40)]
    examples, good = write_rows(tmp_path, rows), write_model(tmp_path, "good")
    config = config_of({**SLICED, "slices": ["plan"]})
    report = report_of(measure(tmp_path / "measured", config, examples, good))
    assert not report.blessed
    assert report.reason == "auc of plan=free is 0, below the threshold of 0.6"
    (accuracy, auc) = report.metrics.values()
    assert (accuracy.ok, auc.ok) == (True, False)
    assert auc.value > 0.6
    assert auc.needs == "at least 0.6, on each slice"


def test_a_metric_that_is_undefined_on_the_whole_split_blocks(tmp_path: Path) -> None:
    """TFMA says that the AUC of one class is 0, which any threshold of an error would keep."""
    rows = [row(number) for number in range(1, 61, 2)]
    examples, good = write_rows(tmp_path, rows), write_model(tmp_path, "good")
    config = config_of({"thresholds": {"auc": {"min": 0.0}}})
    report = report_of(measure(tmp_path / "measured", config, examples, good, good))
    assert not report.blessed
    assert report.reason.startswith("auc is nan, not a number: it is undefined on the eval split")
    (auc, *_others) = report.metrics.values()
    assert math.isnan(auc.value)
    assert auc.interval is None


def test_of_very_many_slices_the_largest_are_measured(tmp_path: Path) -> None:
    many = MAX_REPORTED_SLICES + 500
    rows = [row(number, zone=number % many) for number in range(many + 100)]
    examples, good = write_rows(tmp_path, rows), write_model(tmp_path, "good")
    config = config_of({"metrics": ["accuracy"], "slices": ["zone"]})
    report = report_of(measure(tmp_path / "measured", config, examples, good))
    assert len(report.slices) == MAX_REPORTED_SLICES
    assert {f"zone={number}" for number in range(100)} <= set(report.slices)
    assert report.notes == [
        "evaluate.slices: there are 1,500 slices by zone; only the 1,000 largest are "
        "measured, with 1,100 of 1,600 rows. Slice by a column with fewer values"
    ]


@pytest.mark.parametrize("is_held", [False, True])
def test_of_too_many_slices_none_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """A threshold on slices that nobody has measured is not kept."""
    monkeypatch.setattr("components.evaluator.batched.slices.MAX_TRACKED_SLICES", 100)
    monkeypatch.setattr("components.evaluator.batched.accumulator.MAX_TRACKED_SLICES", 100)
    rows = [row(number, plan=f"p{number}", zone=number % 4) for number in range(400)]
    examples, good = write_rows(tmp_path, rows), write_model(tmp_path, "good")
    thresholds = {"auc": {"min": 0.6, "slices": is_held}}
    config = config_of({"metrics": ["auc"], "slices": ["plan", "zone"], "thresholds": thresholds})
    report = report_of(measure(tmp_path / "measured", config, examples, good))
    note = (
        "evaluate.slices: there are more than 100 slices by plan, and none of these slices "
        "is measured. Slice by a column with fewer values"
    )
    assert note in report.notes
    assert report.blessed is not is_held
    if is_held:
        assert report.reason == (
            f"there are thresholds for slices by plan, but no slices by plan were measured ({note})"
        )
    assert set(report.slices) == {f"zone={number}" for number in range(4)}


def test_the_same_rows_have_the_same_intervals_however_they_are_serialized(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    rows = [row(number) | {"good": float(random.random())} for number in range(120)]
    good = write_model(tmp_path, "good")
    config = config_of({"metrics": ["accuracy", "auc"], "slices": ["plan"]})
    found = []
    for backwards in (False, True):
        folder = tmp_path / f"backwards {backwards}"
        examples = write_rows(folder, rows, backwards)
        measured = measure(folder / "measured", config, examples, good)
        found.append(read_intervals(measured.uri))
    assert found[0].find("auc").interval is not None
    assert found[0] == found[1]


def test_a_model_in_service_that_cannot_read_the_data_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    examples = write_rows(tmp_path, [row(number) for number in range(40)])
    good, other = write_model(tmp_path, "good"), write_model(tmp_path, "gone")
    config = config_of({"thresholds": {"auc": {"min": 0.5}}})
    with caplog.at_level(logging.WARNING, "scopeline.progress"):
        report = report_of(measure(tmp_path / "measured", config, examples, good, other))
    assert report.blessed
    (notice,) = [r.message for r in caplog.records if r.name == "scopeline.progress"]
    assert notice.startswith(
        "the model in service cannot read this data, because columns have changed (Feature: gone "
        "(data type: float) is required but could not be found). Only evaluate.thresholds decide"
    )
    assert "evaluate.thresholds" in notice


def numbered(artifact: Artifact, number: int) -> Artifact:
    """As it is in a store."""
    artifact.id = number
    return artifact


def test_a_model_in_service_that_has_learnt_from_the_rows_is_not_compared_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row(n, other=0.9 if n % 2 and n % 5 else 0.1 + n / 1000, id=n) for n in range(200)]
    now = numbered(write_rows(tmp_path / "now", rows[100:]), 1)
    write_rows(tmp_path / "now", rows[:100], split="train")
    before = numbered(write_rows(tmp_path / "before", rows[:160], split="train"), 2)
    models = write_model(tmp_path, "other"), write_model(tmp_path, "good")
    learnt = {"baseline_examples": [before], "training_examples": [now]}
    config = config_of({"metrics": ["auc"]})
    with caplog.at_level(logging.WARNING, "scopeline.progress"):
        report = report_of(measure(tmp_path / "measured", config, now, *models, **learnt))
    assert report.blessed
    assert report.reason == (
        "auc is better than a constant prediction's, and there is no comparison with the model in "
        "service, which was trained on 60% of the eval split's rows"
    )
    (notice,) = [r.message for r in caplog.records if r.name == "scopeline.progress"]
    assert notice.startswith("the model in service was trained on 60% of the eval split's rows")


@pytest.mark.parametrize("is_same", [True, False])
def test_a_tie_is_kept_where_both_have_learnt_from_the_same_data(
    tmp_path: Path, is_same: bool
) -> None:
    rows = [row(n, other=0.05 if n == 3 else row(n)["good"]) for n in range(200)]
    examples, other = numbered(write_rows(tmp_path, rows), 1), standard_artifacts.Examples()
    other.split_names, other.uri = examples.split_names, str(tmp_path / "deleted")
    models = write_model(tmp_path, "other"), write_model(tmp_path, "good")
    learnt = {
        "baseline_examples": [examples if is_same else numbered(other, 2)],
        "training_examples": [examples],
    }
    config = config_of({"metrics": ["auc"]})
    report = report_of(measure(tmp_path / "measured", config, examples, *models, **learnt))
    assert report.blessed != is_same
    needs = "not worse than in service" if is_same else "not significantly worse than in service"
    assert next(iter(report.metrics.values())).needs.endswith(needs)
    if is_same:
        assert re.fullmatch(
            r"auc is 0\.99\d*, not significantly worse than the 1 of the model in service \(.*\)\. "
            r"The model in service is kept, because both models were trained on the same data\. "
            r"`evaluate: \{ties: newest\}` pushes the new model; a larger "
            r"evaluate\.thresholds\.auc\.tolerance allows a larger difference",
            report.reason,
        ), report.reason


def test_a_difference_that_is_not_significant_is_reported_and_blesses(tmp_path: Path) -> None:
    rows = [row(n) | {"other": 0.9 if n % 2 else 0.1 + n / 1000} for n in range(80)]
    for place in range(5):
        rows[2 * place]["good"] = 0.8
    for place in range(10, 14):
        rows[2 * place]["other"] = 0.8
    examples = write_rows(tmp_path, rows)
    good, other = write_model(tmp_path, "good"), write_model(tmp_path, "other")
    config = config_of({"thresholds": {"accuracy": {"min": 0.5}}})
    report = report_of(measure(tmp_path / "measured", config, examples, good, other))
    assert report.blessed
    assert re.fullmatch(
        r"every threshold is met, and the model is not significantly worse than in service: "
        r"accuracy 0\.9375, not significantly worse than 0\.95 \(difference, 95 %: -0\.0\d+ to "
        r"\+0\.0\d+\)",
        report.reason,
    ), report.reason
    accuracy = report.metrics["accuracy"]
    assert accuracy.interval is not None
    low, high = accuracy.interval
    assert low < 0.9375 < high
    as_values = config_of({"thresholds": {"accuracy": {"min": 0.5}}, "confidence": None})
    values = report_of(measure(tmp_path / "values", as_values, examples, good, other))
    assert values.reason == (
        "accuracy is 0.9375, worse than the 0.95 of the model in service (a larger "
        "evaluate.thresholds.accuracy.tolerance allows a larger difference)"
    )


def test_metrics_that_tfma_computes_by_itself_are_held_as_they_are(tmp_path: Path) -> None:
    """One of Keras's keeps what it likes: all goes through TFMA."""
    examples = write_rows(tmp_path, [row(number) for number in range(40)])
    good = write_model(tmp_path, "good")
    config = config_of({"thresholds": {"auc": {"min": 0.5}}, "metrics": [OWN]})
    report = report_of(measure(tmp_path / "measured", config, examples, good, good))
    assert report.blessed, report.reason
    assert [metric.interval for metric in report.metrics.values()] == [None, None]
    assert report.notes == [
        "there are no confidence intervals for auc, as TFMA computes only values: "
        "thresholds apply to the values"
    ]
