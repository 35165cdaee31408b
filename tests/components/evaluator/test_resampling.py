"""The bootstrap: resampled metrics, intervals, and the verdict on a model."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_model_analysis as tfma
from sklearn import metrics as sk

from components.evaluator.batched.accumulator import GROUPS, Accumulator, Grouper
from components.evaluator.batched.computations import is_plot
from components.evaluator.batched.reading import PredictedBatch
from components.evaluator.batched.slices import ModelRows
from components.evaluator.batched.verdict import compute_intervals, validate
from components.evaluator.dependence import Dependence, block_ends
from components.evaluator.intervals import EvaluationIntervals, MetricIntervals, VerdictSettings
from pipeline.config.settings import PipelineConfig
from pipeline.graph.evaluation import make_eval_config, make_verdict
from tests.support.as_tfma import SLICES, as_batch, make_config, make_rows, raw_columns

CONFIDENCE = 0.95
WITHOUT_FORMULA = {
    "calibration_error",
    "example_count",
    "median_absolute_error",
    "p90_absolute_error",
    "p99_absolute_error",
}
"""Metrics that there are no intervals of; docs/evaluation.md names them."""
NOTHING = pa.RecordBatch.from_pydict({})


def accumulator_of(task: str, *batches: np.ndarray, file: int = 0) -> Accumulator:
    config = make_config(task, is_weighted=True)
    accumulator = Accumulator(config, [tuple(names) for names in SLICES], Grouper(file))
    for places in batches:
        accumulator.add(as_batch(make_rows(task), raw_columns(), places))
    return accumulator


@pytest.mark.parametrize("task", ["binary", "ordinal", "regression"])
def test_metrics_of_unit_weights_are_those_of_the_rows(task: str) -> None:
    accumulator, compared = accumulator_of(task, np.arange(120), np.arange(120, 300)), set()
    for number, (key, metrics) in enumerate(accumulator.results()):
        weight = max(float(v) for k, v in metrics.items() if k.name == "example_count")
        found = accumulator.resampled(number, np.ones((1, GROUPS)))
        for metric_key, value in metrics.items():
            if metric_key.name in WITHOUT_FORMULA or is_plot(metric_key):
                continue
            (ours,) = found["", metric_key.name]
            if np.isfinite(ours) and weight:
                assert ours == pytest.approx(float(value), rel=1e-6), (key, metric_key.name)
                compared.add(metric_key.name)
    numbers = {key.name for key in metrics if not is_plot(key)}
    assert compared == numbers - WITHOUT_FORMULA


def test_resampled_metrics_are_those_of_repeated_rows() -> None:
    """Every formula, of draws that are not all the same, against TFMA on rows drawn as often."""
    draw = np.random.default_rng(5).poisson(1.0, GROUPS).astype(np.float64)
    for task in ("binary", "regression"):
        accumulator = accumulator_of(task, np.arange(300))
        answers = as_batch(make_rows(task), raw_columns(), np.arange(300))
        rows = answers.models[""]
        counts = draw[Grouper(0).groups(answers.rows, answers.columns)]
        drawn = ModelRows(rows.labels, rows.predictions, rows.quantiles, rows.weights * counts)
        again = Accumulator(accumulator.config, [])
        again.add(PredictedBatch({"": drawn}, answers.columns))
        ((_, metrics),) = again.results()
        found = accumulator.resampled(0, draw[np.newaxis])
        for key, value in metrics.items():
            if key.name not in WITHOUT_FORMULA and not is_plot(key):
                (ours,) = found["", key.name]
                assert ours == pytest.approx(float(value), rel=1e-5), key.name


def test_interval_of_accuracy_is_that_of_the_normal_distribution() -> None:
    """By the normal distribution, of 4,000 examples in 1,024 groups."""
    random = np.random.default_rng(4)
    right = random.random(4000) < 0.8
    noise = compared(right, right)
    low, high = noise.interval.ends if noise.interval else (0.0, 0.0)
    error = np.sqrt(right.mean() * (1 - right.mean()) / 4000)
    assert (low + high) / 2 == pytest.approx(right.mean(), abs=error / 5)
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.15)
    assert noise.difference is not None
    assert noise.difference.ends == (0.0, 0.0), "of a model and itself"


def config_of(
    threshold: dict[str, Any], confidence: float | None = CONFIDENCE, **data: Any
) -> PipelineConfig:
    evaluate = {"metrics": ["accuracy", "auc"], "thresholds": {"accuracy": threshold}}
    return PipelineConfig.model_validate(
        {
            "name": "measured",
            "data": {"format": "csv", "path": "nowhere.csv", **data},
            "task": "binary",
            "evaluate": {**evaluate, "confidence": confidence},
        }
    )


def judge(
    right: np.ndarray,
    right_in_service: np.ndarray,
    config: PipelineConfig,
    columns: pa.RecordBatch | None = None,
) -> tuple[bool, MetricIntervals]:
    """Whether a model is blessed, by the code that Evaluator runs, and how sure its accuracy is."""
    eval_config = tfma.utils.update_eval_config_with_defaults(
        make_eval_config(config.criteria), has_baseline=True, rubber_stamp=True
    )
    labels, ones = np.arange(len(right)) % 2, np.ones(len(right))

    def answers(is_right: np.ndarray) -> ModelRows:
        scores = np.where(is_right == (labels == 1), 0.8, 0.2).astype(np.float32)
        return ModelRows(labels, scores[:, np.newaxis], np.zeros((len(right), 0)), ones)

    settings = make_verdict(config.criteria)
    if columns is not None and settings.dependence.order_by:
        ends = block_ends(settings.dependence.keys(columns))
        settings = replace(settings, dependence=replace(settings.dependence, ends=ends))
    grouper = None if settings.confidence is None else Grouper(0, settings.dependence)
    accumulator = Accumulator(eval_config, [], grouper)
    models = {"candidate": answers(right), "baseline": answers(right_in_service)}
    columns = columns or pa.RecordBatch.from_pydict({"x": pa.array(ones)})
    accumulator.add(PredictedBatch(models, columns))
    ((key, metrics),) = accumulator.results([0])
    noise = compute_intervals(accumulator, {0: metrics}, settings, bool)
    validation = validate((key, metrics), eval_config, noise, settings)
    return validation.validation_ok, noise.find("accuracy")


def compared(right: np.ndarray, in_service: np.ndarray) -> MetricIntervals:
    return judge(right, in_service, config_of({"tolerance": 0.01}))[1]


def blocked_share(examples: int, loss: float, pairs: int, tolerance: float = 0.0) -> float:
    """Of pairs of models that are right on 90 % of examples, less the loss of one of them."""
    random, blocked = np.random.default_rng(examples), 0
    config = config_of({"tolerance": tolerance, "min": 0.1})
    for _ in range(pairs):
        both = random.random(examples) < 0.05
        right = ~both & (random.random(examples) < (0.9 - loss) / 0.95)
        in_service = ~both & (random.random(examples) < 0.9 / 0.95)
        blocked += not judge(right, in_service, config)[0]
    return blocked / pairs


def test_equally_good_models_are_blessed() -> None:
    """Values by themselves block half of such models; the note in docs/evaluation.md is of more."""
    assert blocked_share(examples=100, loss=0.0, pairs=20) <= 0.05


def test_significant_loss_blocks_a_model_unless_tolerated() -> None:
    assert blocked_share(examples=10_000, loss=0.02, pairs=2) == 1.0
    assert blocked_share(examples=10_000, loss=0.02, pairs=2, tolerance=0.02) == 0.0


def test_insignificant_difference_blocks_only_without_confidence() -> None:
    """88 rows of the issue at hand: 0.8977 against 0.9091."""
    right, in_service = np.arange(88) >= 9, np.arange(88) % 11 > 0
    assert (right.mean(), in_service.mean()) == pytest.approx((0.8977, 0.9091), abs=1e-4)
    blessed, noise = judge(right, in_service, config_of({"min": 0.5}))
    assert blessed
    assert noise.difference is not None
    assert noise.difference.low < -0.05 < 0.03 < noise.difference.high
    blessed, noise = judge(right, in_service, config_of({"min": 0.5}, confidence=None))
    assert not blessed
    assert noise.difference is None


@pytest.mark.parametrize(
    ("rows", "right", "least", "blessed"),
    [
        (1000, 900, 0.87, True),
        (1000, 900, 0.89, False),
        (100, 100, 0.97, False),
        (10, 10, 0.5, False),
    ],
)
def test_confident_threshold_is_compared_with_the_end_of_the_interval(
    rows: int, right: int, least: float, blessed: bool
) -> None:
    is_right = np.arange(rows) < right
    sure = config_of({"min": {"value": least, "confident": True}})
    assert judge(is_right, is_right, sure)[0] is blessed
    plain = config_of({"min": {"value": least}})
    assert judge(is_right, is_right, plain)[0]


@pytest.mark.parametrize("data", [{"split_by": "patient"}, {"order_by": "patient"}])
def test_rows_of_a_group_or_time_are_resampled_together(data: dict[str, str]) -> None:
    """Of 12 patients of 50 rows, on which models are right or wrong as a whole."""
    patients = np.repeat(np.arange(12), 50)
    columns = pa.RecordBatch.from_pydict({"patient": [[int(patient)] for patient in patients]})
    right, in_service = ~np.isin(patients, (2, 5, 7)), ~np.isin(patients, (3, 5))
    plain, dependent = config_of({"min": 0.5}), config_of({"min": 0.5}, **data)
    assert not judge(right, in_service, plain)[0], "50 rows worse"
    blessed, noise = judge(right, in_service, dependent, columns)
    assert blessed, "one patient worse"
    assert noise.difference is not None
    assert noise.difference.low < -0.2 < 0.1 < noise.difference.high


OF_SLICES = {
    "metrics": ["auc"],
    "slices": ["x"],
    "thresholds": {"auc": {"min": 0.1, "slices": True}},
}


def judge_slices(
    labels: np.ndarray,
    scores: dict[str, np.ndarray],
    columns: pa.RecordBatch,
    evaluate: dict[str, Any] = OF_SLICES,
    keeps_ties: bool | None = None,
    **data: Any,
) -> tuple[dict[Any, bool], EvaluationIntervals]:
    """Whether each slice by `x` is blessed, and what is known of chance."""
    pipeline = PipelineConfig.model_validate(
        {
            "name": "measured",
            "data": {"format": "csv", "path": "nowhere.csv", **data},
            "task": "binary",
            "evaluate": evaluate,
        }
    )
    eval_config = tfma.utils.update_eval_config_with_defaults(
        make_eval_config(pipeline.criteria), has_baseline=True, rubber_stamp=True
    )
    none, ones = np.zeros((len(labels), 0)), np.ones(len(labels))
    models = {
        name: ModelRows(labels.astype(np.int64), values.astype(np.float32)[:, None], none, ones)
        for name, values in scores.items()
    }
    settings = make_verdict(pipeline.criteria)
    if keeps_ties is not None:
        settings = replace(settings, keeps_ties=keeps_ties)
    kinds = [tuple(names) for names in pipeline.evaluate.slices]
    accumulator = Accumulator(eval_config, kinds, Grouper(0, settings.dependence))
    accumulator.add(PredictedBatch(models, columns))
    numbers = accumulator.reported_slices()
    slices = list(accumulator.results(numbers))
    metrics = {number: found for number, (_, found) in zip(numbers, slices, strict=True)}
    noise = compute_intervals(accumulator, metrics, settings, lambda key: True)
    verdicts = {
        dict(key).get("x"): validate((key, found), eval_config, noise, settings).validation_ok
        for key, found in slices
    }
    return verdicts, noise


def test_slice_with_too_few_positives_does_not_block() -> None:
    """AUC on a slice with one positive example, of which the new model thinks a little less."""
    scores = np.random.default_rng(0).random(400)
    labels = (np.arange(400) % 2 == 0) & (np.arange(400) < 200)
    labels[300] = True
    worse = scores.copy()
    scores[300], worse[300] = 0.6, 0.5
    columns = pa.RecordBatch.from_pydict({"x": [[int(n >= 200)] for n in range(400)]})
    verdicts, noise = judge_slices(labels, {"candidate": worse, "baseline": scores}, columns)
    assert noise.find("auc", "x=1").is_unmeasurable
    assert verdicts[1]
    assert any("auc is not compared" in note and "x=1" in note for note in noise.notes)


def scored(seed: int, quality: float, other: float, rows: int) -> tuple[Any, Any]:
    """Labels, one in five, and calibrated probabilities of two models that see as much of them."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(3, rows))
    logits = [-1.9 + q * noise[0] + 0.5 * noise[i] for i, q in ((1, quality), (2, other))]
    labels = random.random(rows) < 1 / (1 + np.exp(1.9 - quality * noise[0]))
    names = ("candidate", "baseline")
    return labels, {n: 1 / (1 + np.exp(-logit)) for n, logit in zip(names, logits, strict=True)}


def is_blessed(labels: np.ndarray, scores: Any, **evaluate: Any) -> bool:
    keeps_ties = evaluate.pop("keeps_ties", None)
    verdicts, _ = judge_slices(labels, scores, NOTHING, evaluate, keeps_ties)
    return verdicts[None]


def test_first_metric_decides_unless_others_are_worse() -> None:
    """As it was with `class_weights`: the same order of the rows, and a log loss five times."""
    labels, scores = scored(0, 1.5, 1.5, 1_000)
    shifted = scores["baseline"] * 9 / (scores["baseline"] * 8 + 1)
    worse = {"candidate": shifted, "baseline": scores["baseline"]}
    assert not is_blessed(labels, worse)
    assert is_blessed(labels, worse, metrics=["auc"])
    assert is_blessed(labels, worse, thresholds={"auc": {"min": 0.5}})


def tied() -> tuple[np.ndarray, dict[str, Any], dict[str, Any], float]:
    """Labels, an insignificant loss, the same as a gain, and its size."""
    labels, scores = scored(1, 1.5, 1.5, 1_000)
    aucs = {name: sk.roc_auc_score(labels, values) for name, values in scores.items()}
    worse, better = sorted(scores, key=lambda name: aucs[name])
    loss = {"candidate": scores[worse], "baseline": scores[better]}
    gain = {"candidate": scores[better], "baseline": scores[worse]}
    return labels, loss, gain, float(aucs[better] - aucs[worse])


def test_ties_are_decided_by_the_config() -> None:
    labels, loss, gain, _ = tied()
    assert is_blessed(labels, loss, ties="newest")
    assert not is_blessed(labels, loss, ties="keep")
    assert not is_blessed(labels, loss, keeps_ties=True)
    assert is_blessed(labels, gain, ties="keep")


def test_tolerated_loss_is_blessed_where_ties_are_kept() -> None:
    labels, loss, gain, gap = tied()
    assert is_blessed(labels, loss, ties="keep", thresholds={"auc": {"tolerance": 2 * gap}})
    others = {"auc": {"min": 0.5}, "log_loss": {"max": 1.0}}
    same = {"candidate": gain["candidate"], "baseline": gain["candidate"]}
    assert is_blessed(labels, same, ties="keep", thresholds=others)


def test_settings_of_the_verdict_survive_json() -> None:
    settings = VerdictSettings(
        0.9,
        ("auc",),
        ("mae",),
        Dependence(order_by="day", ends=(-np.inf, 2.5)),
        {"log_loss": False},
        "auc",
        True,
        "cannot read this data",
    )
    assert VerdictSettings.from_json(settings.to_json()) == settings
    assert VerdictSettings.from_json("") == VerdictSettings()


def intervals_of(accumulator: Accumulator) -> EvaluationIntervals:
    numbers = accumulator.reported_slices()
    slices = accumulator.results(numbers)
    metrics = {number: found for number, (_, found) in zip(numbers, slices, strict=True)}
    return compute_intervals(accumulator, metrics, VerdictSettings(CONFIDENCE), lambda key: True)


def assert_equal(found: EvaluationIntervals, expected: EvaluationIntervals) -> None:
    assert set(found.slices) == set(expected.slices)
    for where, metrics in expected.slices.items():
        for name, noise in metrics.items():
            other = found.find(name, where)
            assert (other.interval is None) == (noise.interval is None), (where, name)
            if noise.interval is not None and other.interval is not None:
                assert other.interval.ends == pytest.approx(noise.interval.ends, rel=1e-6)


def test_intervals_depend_neither_on_batches_nor_on_the_order_of_files() -> None:
    whole = accumulator_of("binary", np.arange(200))
    whole.merge(accumulator_of("binary", np.arange(200, 300), file=1))
    first = accumulator_of("binary", np.arange(50), np.arange(50, 70), np.arange(70, 200))
    # As they are sent from one process to another.
    second = accumulator_of("binary", np.arange(200, 290), np.arange(290, 300), file=1)
    merged: Accumulator = pickle.loads(pickle.dumps(second))  # noqa: S301
    merged.merge(first)
    expected = intervals_of(whole)
    assert expected.slices[""]["auc"].interval is not None
    assert_equal(intervals_of(merged), expected)
