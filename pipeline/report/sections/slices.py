"""The section about slices: their metrics beside each other, and the differences beyond chance."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.records.summary import MetricSummary
from pipeline.report import charts
from pipeline.report.blocks import Block, Cell, Columns, Figure, Note, Section, Table
from pipeline.report.private_slices import is_private
from pipeline.report.slice_differences import MIN_ROWS, SliceDifference, slice_differences
from pipeline.report.source import ReportSource
from pipeline.report.text import interval, is_number, listed, number, percent, shorten, signed
from trainer_module.errors import counted

MAX_METRICS = 4
MAX_CHARTED = 15


def make_slices(source: ReportSource) -> Section | None:
    """Returns the section of slices, or None if `evaluate.slices` names no columns."""
    slices = {
        name: metrics
        for name, metrics in source.summary.slices.items()
        if not is_private(name, source.private)
    }
    if not slices or not source.summary.metrics:
        return None
    total = source.summary.examples.get("eval")
    blocks: list[Block] = []
    gists, figures = [], []
    for metric, whole in list(source.summary.metrics.items())[:MAX_METRICS]:
        intervals = source.details.slice_intervals
        found = slice_differences(metric, whole, slices, intervals, total, source.confidence)
        if found:
            gists.append(_gist(metric, found))
            figures.append(_figure(metric, whole, found))
    if source.details.slice_intervals:
        kind = "warn" if any(is_beyond for _, is_beyond in gists) else ""
        blocks.append(Note("\n".join(gist for gist, _ in gists), kind))
    blocks.append(Columns(figures))
    blocks.append(Note(_explanation(source), "muted"))
    lead = f"{counted(len(slices), 'slice')}, those that differ most from the whole first."
    return Section("slices", "Slices and fairness", blocks, lead)


def _gist(metric: str, found: Sequence[SliceDifference]) -> tuple[str, bool]:
    """Returns the result of the tests in one metric, and whether a slice differs beyond chance."""
    tested = [one for one in found if one.margin is not None]
    beyond = [one for one in tested if one.is_beyond_chance]
    if not tested:
        return f"{metric}: no slice has {MIN_ROWS} rows and a confidence interval.", False
    verb = "differs" if len(beyond) == 1 else "differ"
    gist = f"{metric}: {len(beyond)} of {counted(len(tested), 'tested slice')} {verb} beyond chance"
    names = listed((f"{shorten(one.name, 50)} ({signed(one.difference)})" for one in beyond), 4)
    return (f"{gist}: {names}." if beyond else f"{gist}."), bool(beyond)


def _figure(metric: str, whole: MetricSummary, found: Sequence[SliceDifference]) -> Figure:
    rows = []
    for one in found[:MAX_CHARTED]:
        low, high = one.interval or (one.value, one.value)
        has_interval = is_number(low) and is_number(high)
        rows.append(
            {
                "name": shorten(one.name, 26),
                "value": one.value,
                "low": low if has_interval else one.value,
                "high": high if has_interval else one.value,
                "kind": "series-2" if one.is_beyond_chance else "series-1",
            }
        )
    svg = charts.intervals(rows, metric, reference=whole.value)
    first = found[0]
    message = (
        f"{metric} by slice; the whole eval split has {number(whole.value)}. "
        f"{shorten(first.name, 60)} has {number(first.value)}."
    )
    note = f"The dashed line is the whole eval split, {number(whole.value)}."
    if len(found) > MAX_CHARTED:
        note += f" {MAX_CHARTED} of {len(found):,} slices are shown."
    return Figure(f"{metric} by slice", message, svg, _table(metric, found), note)


def _table(metric: str, found: Sequence[SliceDifference]) -> Table:
    rows: list[list[str | Cell]] = [
        [
            shorten(one.name, 80),
            f"{one.rows:,}",
            number(one.value),
            interval(one.interval),
            Cell(signed(one.difference), "warn" if one.is_beyond_chance else ""),
            f"±{number(one.margin)}" if one.margin is not None else "not tested",
        ]
        for one in found
    ]
    head = ["slice", "rows", "value", "interval", "difference", "chance explains"]
    return Table.capped(f"All slices: {metric}", head, rows, is_folded=True)


def _explanation(source: ReportSource) -> str:
    if not source.details.slice_intervals:
        return (
            "There are no confidence intervals of slices, so that differences cannot be compared "
            "with chance."
        )
    return (
        f"Orange slices differ from the other rows by more than chance explains at "
        f"{percent(source.confidence)}, with Bonferroni's correction for the number of slices; "
        f"slices of fewer than {MIN_ROWS} rows are not tested. A difference is no proof of unfair "
        "treatment, and a small slice without a difference is no proof of fair treatment."
    )
