"""The naive prediction is the best past label of each metric."""

from __future__ import annotations

import numpy as np
import pytest

from components.evaluator.naive_prediction import NaivePrediction, predict_naively


def test_the_best_past_label_is_chosen_by_metric():
    labels = np.array([1.0, 2, 3, 4])
    naive = predict_naively(
        labels,
        {
            "often_exact": np.array([1.0, 2, 3, 8]),
            "always_near": labels + 1.5,
            "partly_missing": np.array([np.nan, 2, 3, np.nan]) + 2,
            "never_known": np.full(4, np.nan),
        },
    )
    assert naive is not None
    assert naive.columns == {"mae": "often_exact", "rmse": "always_near", "mse": "always_near"}
    assert naive.values == pytest.approx({"mae": 1, "rmse": 1.5, "mse": 2.25})
    # The mean of the labels, 2.5, stands for a past label that is missing.
    only = predict_naively(labels, {"partly_missing": np.array([np.nan, 4, 5, np.nan])})
    assert only is not None
    assert only.values["mae"] == pytest.approx((1.5 + 2 + 2 + 1.5) / 4)


def test_model_that_is_not_better_than_a_past_label_is_noted():
    naive = NaivePrediction({"mae": "y_lag_7"}, {"mae": 12.5})
    assert "mae is 10, and 12.5 if y_lag_7" in naive.compare({"r2": 0.5, "mae": 10.0})
    for value in (12.5, float("nan")):
        assert "not better" in naive.compare({"mae": value})
    assert not naive.compare({"r2": 0.5})


def test_without_past_labels_there_is_no_naive_prediction():
    assert predict_naively(np.array([1.0]), {"lag": np.array([np.nan])}) is None
    assert predict_naively(np.zeros(0), {"lag": np.zeros(0)}) is None
