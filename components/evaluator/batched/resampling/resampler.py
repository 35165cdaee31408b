"""The metrics of all resamples of a slice."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types

from components.evaluator.batched.measuring import Computations
from components.evaluator.batched.resampling.drawing import Drawn
from components.evaluator.batched.resampling.formulas import DERIVED, DIRECT, Values
from components.evaluator.batched.resampling.grouped import Grouped
from components.evaluator.batched.resampling.groups import draws
from components.evaluator.batched.twins import Twin, find_twin
from components.evaluator.eval_config import metric_classes, plain_metrics


@dataclass(frozen=True)
class MetricSource:
    """A twin that metrics are made from, and which they are."""

    twin: Twin
    model: str
    metrics: tuple[str, ...]
    """In the order of what its formula gives, or of any order where they are derived."""


class Resampler:
    """Makes the metrics of resamples, of those metrics whose formulas are known here."""

    def __init__(
        self, computations: Computations, classes: Mapping[str, str], plain: Collection[str]
    ) -> None:
        """Looks for the formulas.

        Args:
          computations: of the evaluation.
          classes: the class of each metric, by its name.
          plain: the names of those without arguments, as formulas of derived metrics have none.
        """
        self._classes = classes
        derived = {name: kind for name, kind in classes.items() if name in plain}
        found = (_source(one, set(classes), derived) for one in computations.base)
        self._sources = [source for source in found if source is not None]

    @classmethod
    def of(cls, config: tfma.EvalConfig, computations: Computations) -> Resampler:
        """That of an evaluation."""
        return cls(computations, metric_classes(config), plain_metrics(config))

    @property
    def metrics(self) -> frozenset[str]:
        """The names of the metrics that it makes."""
        return frozenset(name for source in self._sources for name in source.metrics)

    def start(self) -> Grouped:
        """What the groups of examples come to: nothing yet."""
        twins = [type(source.twin)(source.twin.combiner) for source in self._sources]
        return Grouped(twins, [source.model for source in self._sources])

    def values(
        self, grouped: Grouped, number: int, counts: np.ndarray | None = None
    ) -> dict[tuple[str, str], Values]:
        """The metrics of a slice by model and name, [resamples] each.

        Args:
          grouped: what `start` gave, with rows.
          number: of the slice.
          counts: [resamples, GROUPS], how often each group is drawn; default: `draws()`.
        """
        mine, groups = grouped.parts_of(number)
        by_group = (draws() if counts is None else counts).T
        drawn = Drawn(mine, by_group[groups].T)
        found: dict[tuple[str, str], Values] = {}
        for source, twin in zip(self._sources, grouped.twins, strict=True):
            if type(twin) in DIRECT:
                values = DIRECT[type(twin)](twin, drawn)
                found |= zip(((source.model, m) for m in source.metrics), values, strict=True)
            else:
                by_class = DERIVED[type(twin)].values(twin, drawn)
                for name in source.metrics:
                    found[source.model, name] = by_class[self._classes[name]]
        return found


def _source(
    computation: metric_types.MetricComputation, names: set[str], derived: Mapping[str, str]
) -> MetricSource | None:
    """The twin of a computation, if there are formulas of what is made of it.

    Args:
      computation: one of TFMA's.
      names: those of the metrics that people asked for.
      derived: the class of each metric that may be derived from it, by its name.
    """
    keys, twin = computation.keys, find_twin(computation.combiner)
    if type(twin) in DIRECT and twin is not None:
        outputs = tuple(key.name for key in keys)
        return MetricSource(twin, keys[0].model_name, outputs) if set(outputs) <= names else None
    if type(twin) in DERIVED and twin is not None:
        formulas = DERIVED[type(twin)]
        made = tuple(name for name, kind in derived.items() if kind in formulas.classes)
        is_theirs = bool(made) and formulas.suits(twin)
        return MetricSource(twin, keys[0].model_name, made) if is_theirs else None
    return None
