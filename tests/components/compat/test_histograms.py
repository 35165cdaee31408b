"""TFDV's histograms and ours are the same."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.compat import tfdv

# A copy of the module that nothing in this process has changed.
SPEC = importlib.util.find_spec("tensorflow_data_validation.utils.quantiles_util")
STOCK = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(STOCK)

Values = Callable[[np.random.Generator], np.ndarray]


@pytest.mark.parametrize(
    "values",
    [
        lambda random: random.normal(size=500),
        lambda random: random.integers(0, 4, 300),
        lambda random: np.full(50, 3.0),
        lambda random: np.concatenate([[-np.inf] * 2, random.normal(size=40), [np.inf] * 3]),
        lambda random: random.exponential(size=200) * 1e30,
        lambda random: np.concatenate([np.zeros(900), random.normal(size=3)]),
        lambda random: np.array([1.0]),
    ],
    ids=["normal", "few values", "constant", "infinite", "huge", "mostly zero", "single"],
)
@pytest.mark.parametrize("boundaries", [2, 11, 1001])
def test_histograms_are_those_of_tfdv(values: Values, boundaries: int) -> None:
    data = np.sort(values(np.random.default_rng(0)).astype(float))
    finite = data[np.isfinite(data)]
    quantiles = np.quantile(data, np.linspace(0, 1, boundaries), method="nearest")
    counts = np.linspace(1, len(data), boundaries)
    for ours, theirs in zip(
        tfdv.bin_weights(quantiles, counts),
        STOCK._get_bin_weights(quantiles, counts.copy()),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    infinite = float(np.sum(data == np.inf))
    arguments = (quantiles, counts, finite.min(), finite.max(), 10, infinite)
    np.testing.assert_allclose(
        rows(tfdv.equi_width_histogram(*arguments)),
        rows(STOCK.generate_equi_width_histogram(*arguments)),
    )


def rows(histogram: statistics_pb2.Histogram) -> np.ndarray:
    return np.array([(b.low_value, b.high_value, b.sample_count) for b in histogram.buckets])
