"""The metrics of an evaluation: which computations of TFMA's they need, and their results."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis import types
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.utils import model_util

# Registers the twins.
from components.evaluator.batched import bins, counts, keras, means  # noqa: F401
from components.evaluator.batched.crowds import Kind, Largest
from components.evaluator.batched.matrices import find_matrices
from components.evaluator.batched.rows import Members, ModelRows
from components.evaluator.batched.slices import SliceKey, Slicer
from components.evaluator.batched.twins import Sums, Twin, find_twin

Metrics = dict[Any, Any]
"""Values by TFMA's keys."""


@dataclass(frozen=True)
class Computations:
    """What is computed for an EvalConfig, by TFMA's own rules."""

    base: list[metric_types.MetricComputation]
    derived: list[metric_types.DerivedMetricComputation]
    baseline: str | None
    """What the model in service is called, if there is one."""

    @classmethod
    def of(cls, config: tfma.EvalConfig) -> Computations | None:
        """Those of a config; None where one of them cannot be done by batches."""
        # Of equal ones the first, as TFMA has it: those after it may need it.
        wanted = list(
            dict.fromkeys(metric_specs.to_computations(config.metrics_specs, eval_config=config))
        )
        base = [one for one in wanted if type(one) is metric_types.MetricComputation]
        derived = [one for one in wanted if type(one) is metric_types.DerivedMetricComputation]
        if len(base) + len(derived) < len(wanted):
            return None
        if config.options.compute_confidence_intervals.value or not all(map(_twin, base)):
            return None
        spec = model_util.get_baseline_model_spec(config)
        return cls(base, derived, spec.name if spec else None)

    @property
    def have_plots(self) -> bool:
        """Whether some of the results are curves or matrices, which TFMA keeps beside metrics."""
        keys = [key for computation in self.derived for key in computation.keys]
        return any(is_plot(key) and not _is_private(key) for key in keys)

    def start(
        self, columns: list[Kind], largest: Mapping[Kind, Largest] | None = None
    ) -> Measurement:
        """A measurement of no rows.

        Args:
          columns: of each kind of slices the columns that it is by.
          largest: of kinds of too many slices, which are measured alone.
        """
        twins = [twin for one in self.base if (twin := _twin(one)) is not None]
        models = [one.keys[0].model_name for one in self.base]
        return Measurement(Slicer(columns, largest), twins, models)

    def resume(self, found: Found) -> Measurement:
        """A measurement that goes on from what has been found."""
        measurement = self.start(found.columns, found.largest)
        for key in found.keys:
            measurement.slicer.number(key)
        for twin, sums in zip(measurement.twins, found.sums, strict=True):
            twin.sums = sums
        measurement.rows = found.rows
        return measurement

    def results(
        self, measurement: Measurement, numbers: Iterable[int] | None = None
    ) -> Iterator[tuple[SliceKey, Metrics]]:
        """The metrics and plots of each slice, with the differences to the model in service.

        Args:
          measurement: with the rows.
          numbers: of the slices; default: of all.
        """
        keys = measurement.slicer.keys
        for number in range(len(keys)) if numbers is None else numbers:
            key = keys[number]
            found: Metrics = {}
            matrices: Metrics = {}
            for twin in measurement.twins:
                matrices |= find_matrices(twin, number, self.derived)
                found |= twin.output(number)
            for computation in self.derived:
                is_known = all(key in matrices for key in computation.keys)
                found |= matrices if is_known else computation.result(found)
            found |= self._differences(found)
            yield key, {k: v for k, v in found.items() if not _is_private(k)}

    def _differences(self, found: Metrics) -> Metrics:
        if self.baseline is None:
            return {}
        return {
            key.make_diff_key(): value - found[key.make_baseline_key(self.baseline)]
            for key, value in found.items()
            if key.model_name != self.baseline
            and not _is_private(key)
            and not key.is_diff
            and key.make_baseline_key(self.baseline) in found
            and _is_number(value)
        }


@dataclass(frozen=True)
class Found:
    """What rows have come to, without TFMA's objects, of which some cannot be sent on."""

    columns: list[Kind]
    """Of each kind of slices those that it is by."""
    largest: Mapping[Kind, Largest]
    """Of kinds of too many slices, which are measured."""
    keys: list[SliceKey]
    """Of the slices, in the order of their numbers."""
    sums: list[Sums]
    """Of each twin."""
    rows: int


@dataclass
class Measurement:
    """What rows have come to so far; two of the same computations add up."""

    slicer: Slicer
    twins: list[Twin]
    models: list[str]
    """Whose predictions each twin is of."""
    rows: int = field(default=0)

    def add(self, batches: Mapping[str, ModelRows], members: Members) -> None:
        """Adds a batch, by what each model makes of it."""
        for twin, model in zip(self.twins, self.models, strict=True):
            twin.add(batches[model], members)
        self.rows += len(next(iter(batches.values())).labels)

    def found(self) -> Found:
        """What another process can go on from."""
        sums = [twin.sums for twin in self.twins]
        slicer = self.slicer
        return Found(slicer.columns, slicer.largest, slicer.keys, sums, self.rows)

    def merge(self, other: Measurement) -> None:
        """Adds what another process, or another file, has come to."""
        places = np.array([self.slicer.number(key) for key in other.slicer.keys])
        for twin, also in zip(self.twins, other.twins, strict=True):
            twin.merge(also, places, len(self.slicer.keys))
        self.rows += other.rows


def _twin(computation: metric_types.MetricComputation) -> Twin | None:
    # Those that only say which inputs are looked at change nothing.
    plain = metric_types.StandardMetricInputsPreprocessor
    changes = any(type(one) is not plain for one in computation.preprocessors or ())
    return None if changes else find_twin(computation.combiner)


def _is_private(key: metric_types.MetricKey) -> bool:
    return key.name.startswith("_") and not key.name.startswith("__")


def is_plot(key: metric_types.MetricKey) -> bool:
    """Whether TFMA keeps what has this key beside the metrics."""
    return isinstance(key, metric_types.PlotKey)


def _is_number(value: Any) -> bool:
    """Whether TFMA takes differences of it."""
    if isinstance(value, np.ndarray):
        return np.issubdtype(value.dtype, np.number)
    return isinstance(value, (numbers.Number, types.StructuredMetricValue))
