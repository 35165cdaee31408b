"""The records from which a report is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from components.evaluator.explanation.record import WorstExamples
from pipeline.records.details import RunDetails
from pipeline.records.summary import RunSummary

IGNORED = "ignored"
"""The type of a column in `ColumnDetails` that the model does not read."""


@dataclass(frozen=True)
class ReportSource:
    """The records of a run. Summaries of earlier versions have no details."""

    summary: RunSummary
    worst_examples: WorstExamples | None = None
    history: Sequence[RunSummary] = field(default_factory=tuple)
    """Earlier runs of the pipeline, the oldest first."""

    @cached_property
    def details(self) -> RunDetails:
        """The details of the run; empty if the summary has none."""
        return self.summary.details or RunDetails()

    def setting(self, *path: str) -> Any:
        """Returns a value of the config as it was run, or None."""
        value: Any = self.details.config
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    @cached_property
    def private(self) -> frozenset[str]:
        """The columns of `report.private`, of which the report shows no values."""
        names = self.setting("report", "private")
        names = [names] if isinstance(names, str) else names
        return frozenset(map(str, names)) if isinstance(names, list | tuple) else frozenset()

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The private columns and the columns that the model does not read."""
        ignored = {column.name for column in self.details.columns if column.type == IGNORED}
        declared = self.setting("features")
        for name, feature in declared.items() if isinstance(declared, Mapping) else ():
            if isinstance(feature, Mapping) and feature.get("type") == "ignore":
                ignored.add(name)
        inferred = self.summary.columns.items()
        ignored |= {name for name, column in inferred if column.settings.get("type") == "ignore"}
        return self.private | ignored

    @property
    def confidence(self) -> float:
        """The level of the confidence intervals."""
        level = self.setting("evaluate", "confidence")
        return level if isinstance(level, float) and 0 < level < 1 else 0.95
