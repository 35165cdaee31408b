"""Bad slices, known rows and insignificant differences in an evaluation."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx.types import Artifact, artifact_utils, standard_artifacts

from pipeline.records.summary import EvaluationReport
from pipeline.runs.evaluation_report import read_evaluation
from tests.support.evaluation_artifacts import Measured, config_of, measure, write_model

Row = dict[str, Any]


pytestmark = pytest.mark.slow


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


SLICED = {"metrics": ["accuracy"], "thresholds": {"auc": {"min": 0.6, "slices": True}}}


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


def test_a_metric_that_is_undefined_on_the_whole_split_blocks(tmp_path: Path) -> None:
    """TFMA says that the AUC of one class is 0, which any threshold of an error would keep."""
    rows = [row(number) for number in range(1, 61, 2)]
    examples, good = write_rows(tmp_path, rows), write_model(tmp_path, "good")
    config = config_of({"thresholds": {"auc": {"min": 0.0}}})
    report = report_of(measure(tmp_path / "measured", config, examples, good, good))
    assert not report.blessed
    assert "auc" in report.reason
    (auc, *_others) = report.metrics.values()
    assert math.isnan(auc.value)
    assert auc.interval is None
