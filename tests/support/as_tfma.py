"""Compares what batches came to with what TFMA has written, number for number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tensorflow_model_analysis.proto.metrics_for_slice_pb2 import PlotsForSlice
from tensorflow_model_analysis.writers import metrics_plots_and_validations_writer as plots_writer

from components.evaluator.batched.computations import is_plot

OF_QUANTILES = ("coverage", "interval_width", "pinball_loss")
"""What needs quantiles beside predictions is compared with its formula elsewhere."""


def check_metrics(found: dict[Any, Any], expected: tfma.EvalResult) -> None:
    """Each number of each slice is TFMA's."""
    assert {key for key, _ in expected.slicing_metrics} == set(found)
    for key, by_output in expected.slicing_metrics:
        ours = {one.name: value for one, value in found[key].items()}
        for name, value in by_output[""][""].items():
            if name in OF_QUANTILES:
                continue
            right = float(value["doubleValue"])
            assert float(ours[name]) == pytest.approx(right, rel=1e-6, abs=1e-9, nan_ok=True), (
                key,
                name,
            )


def check_plots(found: dict[Any, Any], folder: Path) -> None:
    """Curves and matrices are those that TFMA has written, number for number."""
    plots = {
        str(one.slice_key): numbers_of(one)
        for one in tfma.load_plots(str(folder))
        if numbers_of(one)
    }
    ours = (
        plots_writer.convert_slice_plots_to_proto(
            (key, {one: value for one, value in metrics.items() if is_plot(one)}), None
        )
        for key, metrics in found.items()
    )
    numbers = {str(one.slice_key): numbers_of(one) for one in ours if numbers_of(one)}
    assert set(numbers) == set(plots)
    for key, expected in plots.items():
        assert numbers[key] == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True), key


def numbers_of(plots: PlotsForSlice) -> dict[str, float]:
    """All numbers, by their path."""

    def walk(path: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(f"{path}.{key}", inner)
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                yield from walk(f"{path}.{place}", inner)
        elif not isinstance(value, bool | str):
            yield path, float(value)

    return dict(walk("", json_format.MessageToDict(plots).get("plotKeysAndValues", [])))
