"""Compares two runs by their summaries: config, data, metrics, time and costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.config.sections.evaluate import EvaluateSettings
from pipeline.records.details import ColumnDetails, RunDetails, SplitStatistics
from pipeline.records.summary import MetricSummary, RunSummary
from pipeline.report.text import NONE, yes_or_no

MAX_COLUMNS = 20
"""The maximum number of columns that a comparison lists, beginning with the largest change."""
_SMALL_SHIFT, _SMALL_SHARE = 0.1, 0.01
"""Smaller changes of a mean in standard deviations, and of shares, are not listed."""


@dataclass(frozen=True)
class Difference:
    """A value of two runs, as text."""

    name: str
    first: str
    second: str


@dataclass(frozen=True)
class MetricDifference:
    """A metric of two runs."""

    name: str
    first: MetricSummary | None
    second: MetricSummary | None
    difference: float | None
    """The second value minus the first."""
    interval: tuple[float, float] | None
    """The confidence interval of the difference, for independent rows."""

    @property
    def verdict(self) -> str:
        """A statement whether chance explains the difference."""
        if self.difference is None:
            return "only one run has it"
        if self.interval is None:
            return "no interval is known"
        low, high = self.interval
        return "chance explains it" if low <= 0 <= high else "more than chance"


@dataclass(frozen=True)
class StepDifference:
    """The time and costs of a component in two runs."""

    name: str
    states: tuple[str, str]
    seconds: tuple[float | None, float | None]
    cpu_seconds: tuple[float | None, float | None]
    peak_bytes: tuple[int | None, int | None]
    price: tuple[float | None, float | None]


@dataclass(frozen=True)
class ColumnChange:
    """A column of the train split whose values differ between two runs."""

    name: str
    change: str
    size: float
    """The size of the change, by which columns are sorted."""


@dataclass(frozen=True)
class Comparison:
    """The differences between two runs."""

    first: RunSummary
    second: RunSummary
    results: list[Difference]
    config: list[Difference]
    code: list[Difference]
    """Versions of packages and the fingerprint of the code that differ."""
    data: list[Difference]
    columns: list[ColumnChange]
    metrics: list[MetricDifference]
    steps: list[StepDifference]
    notes: list[str]


def compare_runs(first: RunSummary, second: RunSummary) -> Comparison:
    """Returns the differences between two runs."""
    before, after = first.details or RunDetails(), second.details or RunDetails()
    levels = {_confidence(before), _confidence(after)}
    columns = sorted(_column_changes(before, after), key=lambda change: -change.size)
    return Comparison(
        first,
        second,
        results=list(_results(first, second)),
        config=_differing(_flatten(before.config), _flatten(after.config)),
        code=_differing(_code(before), _code(after)),
        data=list(_data(first, second)),
        columns=columns,
        metrics=[
            _metric(name, first.metrics.get(name), second.metrics.get(name), len(levels) == 1)
            for name in dict.fromkeys([*first.metrics, *second.metrics])
        ],
        steps=list(_steps(first, second)),
        notes=list(_notes(first, second, levels)),
    )


def interval_of_difference(
    first: MetricSummary, second: MetricSummary
) -> tuple[float, float] | None:
    """Returns the confidence interval of `second - first` for independent estimates.

    The bounds follow from the two intervals by the method of variance estimates recovery (Zou and
    Donner, Statistics in Medicine 27, 2008), which needs no symmetric intervals.
    """
    if first.interval is None or second.interval is None:
        return None
    difference = second.value - first.value
    (low_1, high_1), (low_2, high_2) = first.interval, second.interval
    bounds = (
        difference - math.hypot(second.value - low_2, high_1 - first.value),
        difference + math.hypot(high_2 - second.value, first.value - low_1),
    )
    return bounds if all(map(math.isfinite, bounds)) else None


def _metric(
    name: str, first: MetricSummary | None, second: MetricSummary | None, is_same_level: bool
) -> MetricDifference:
    if first is None or second is None:
        return MetricDifference(name, first, second, None, None)
    interval = interval_of_difference(first, second) if is_same_level else None
    return MetricDifference(name, first, second, second.value - first.value, interval)


def _notes(first: RunSummary, second: RunSummary, levels: set[float | None]) -> Iterator[str]:
    if first.metrics and second.metrics:
        yield (
            "The interval of a difference follows from the intervals of the two runs, as if they "
            "had evaluated different rows. If both runs evaluated the same rows, the true interval "
            "is narrower; summaries have no predictions by row, so it cannot be computed here."
        )
        rows = first.examples.get("eval"), second.examples.get("eval")
        if rows[0] != rows[1]:
            yield "The eval splits differ, so a difference may come from the rows, not the model."
    if len(levels) > 1:
        yield "The runs have different evaluate.confidence, so differences have no intervals."
    for summary in (first, second):
        if summary.details is None:
            yield (
                f"Run {summary.run_id} has no details: an earlier release made it, or it has not "
                "ended. Its config, columns and costs are unknown."
            )


def _results(first: RunSummary, second: RunSummary) -> Iterator[Difference]:
    pairs = {
        "status": (first.status.value, second.status.value),
        "blessed": (yes_or_no(first.blessed), yes_or_no(second.blessed)),
        "model": tuple(str(s.training.get("model") or NONE) for s in (first, second)),
        "strategy": (first.strategy, second.strategy),
        "epochs": tuple(str(s.training.get("epochs") or NONE) for s in (first, second)),
    }
    if first.error or second.error:
        pairs["error"] = (_error(first), _error(second))
    for name, (before, after) in pairs.items():
        yield Difference(name, before, after)


def _error(summary: RunSummary) -> str:
    return NONE if summary.error is None else summary.error.message


def _flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Returns the values of nested mappings by their dotted keys, as text."""
    if isinstance(value, Mapping) and value:
        items = [
            _flatten(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items()
        ]
        return {key: text for found in items for key, text in found.items()}
    return {prefix: str(value)} if prefix else {}


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    if not first or not second:
        return []
    return [
        Difference(key, first.get(key, NONE), second.get(key, NONE))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    ]


def _code(details: RunDetails) -> dict[str, str]:
    lineage = details.lineage
    return {} if lineage is None else {"code": lineage.code, **lineage.versions, **lineage.machine}


def _confidence(details: RunDetails) -> float | None:
    evaluate = details.config.get("evaluate")
    given = evaluate.get("confidence") if isinstance(evaluate, Mapping) else None
    return float(given) if isinstance(given, int | float) else EvaluateSettings().confidence


def _data(first: RunSummary, second: RunSummary) -> Iterator[Difference]:
    for split in dict.fromkeys([*first.examples, *second.examples]):
        counts = first.examples.get(split), second.examples.get(split)
        yield Difference(f"rows of {split}", *map(_count, counts))
    windows = first.window, second.window
    if any(windows):
        yield Difference("newest span", *(w.newest if w else NONE for w in windows))
        yield Difference("spans", *(str(len(w.spans)) if w else NONE for w in windows))
    if first.details and second.details:
        details = first.details, second.details
        numbers = (str(len(d.columns) + d.columns_omitted) for d in details)
        yield Difference("columns", *numbers)
        before, after = ({f"type of {c.name}": c.type for c in d.columns} for d in details)
        yield from _differing(before, after)
    for name in ("anomalies", "drift"):
        found = len(getattr(first, name)), len(getattr(second, name))
        if any(found):
            yield Difference(name, *map(_count, found))


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _column_changes(first: RunDetails, second: RunDetails) -> Iterator[ColumnChange]:
    later = {column.name: column for column in second.columns}
    for column in first.columns:
        if column.name in later:
            yield from _changes_of(column, later[column.name])


def _changes_of(first: ColumnDetails, second: ColumnDetails) -> Iterator[ColumnChange]:
    before, after = first.splits.get("train"), second.splits.get("train")
    if before is None or after is None:
        return
    found = [
        *_missing_change(before, after),
        *_mean_change(before, after),
        *_top_change(before, after),
    ]
    if found:
        yield ColumnChange(
            first.name, "; ".join(text for text, _ in found), max(s for _, s in found)
        )


def _missing_change(before: SplitStatistics, after: SplitStatistics) -> Iterator[tuple[str, float]]:
    change = after.missing - before.missing
    if abs(change) >= _SMALL_SHARE:
        yield f"missing {before.missing:.1%} to {after.missing:.1%}", abs(change)


def _mean_change(before: SplitStatistics, after: SplitStatistics) -> Iterator[tuple[str, float]]:
    if before.mean is None or after.mean is None or not before.std:
        return
    shift = (after.mean - before.mean) / before.std
    if abs(shift) >= _SMALL_SHIFT:
        text = f"mean {before.mean:.4g} to {after.mean:.4g} ({shift:+.2g} standard deviations)"
        yield text, abs(shift)


def _top_change(before: SplitStatistics, after: SplitStatistics) -> Iterator[tuple[str, float]]:
    """Yields the largest change of the share of a value that is frequent in both runs."""
    shares = dict(before.top), dict(after.top)
    changes = {v: shares[1][v] - shares[0][v] for v in shares[0].keys() & shares[1].keys()}
    value = max(changes, key=lambda v: (abs(changes[v]), v), default=None)
    if value is not None and abs(changes[value]) >= _SMALL_SHARE:
        text = f"{value!r} {shares[0][value]:.1%} to {shares[1][value]:.1%} of the rows"
        yield text, abs(changes[value])


def _steps(first: RunSummary, second: RunSummary) -> Iterator[StepDifference]:
    summaries = first, second
    components = [{c.name: c for c in summary.components} for summary in summaries]
    costs = [summary.details.costs if summary.details else {} for summary in summaries]
    for name in dict.fromkeys([*components[0], *components[1]]):
        ran = [by_name.get(name) for by_name in components]
        cost = [by_name.get(name) for by_name in costs]
        yield StepDifference(
            name,
            states=_pair(c.state.value if c else NONE for c in ran),
            seconds=_pair(c.seconds if c else None for c in ran),
            cpu_seconds=_pair(c.cpu_seconds if c else None for c in cost),
            peak_bytes=_pair(c.peak_bytes if c else None for c in cost),
            price=_pair(c.price if c else None for c in cost),
        )


def _pair(values: Iterator[Any]) -> Any:
    first, second = values
    return first, second
