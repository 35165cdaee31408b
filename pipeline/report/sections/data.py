"""The section about the data: splits, columns, distributions, anomalies and drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.component_ids import ComponentId
from pipeline.records.details import ColumnDetails, SplitStatistics
from pipeline.records.summary import RunSummary, State
from pipeline.report import small_charts
from pipeline.report.blocks import (
    Block,
    Cell,
    Facts,
    Figure,
    Items,
    Multiples,
    Note,
    Section,
    Table,
)
from pipeline.report.source import ReportSource
from pipeline.report.text import NONE, is_number, listed, number, percent, shorten
from trainer_module.errors import counted

MAX_CHARTS = 24
MAX_SPLITS = 4
MAX_CATEGORIES = 5
MAX_UNKNOWN = 0.1
"""A category is shown if each of its unknown shares is at most this part of its largest share."""


def make_data(source: ReportSource) -> Section | None:
    """Returns the section of the data, or None if the run ended before it was read."""
    summary = source.summary
    found = (summary.examples, summary.columns, summary.anomalies, summary.drift)
    if not any(found) and not source.details.columns:
        return None
    blocks: list[Block] = []
    if pairs := list(_facts(source)):
        blocks.append(Facts(pairs))
    if summary.anomalies:
        blocks.append(Items.capped("Anomalies", summary.anomalies, "bad"))
    if summary.drift:
        blocks.append(Items.capped("Drift", summary.drift, "warn"))
    if _is_validated(summary) and not summary.anomalies and not summary.drift:
        blocks.append(Note("No anomalies and no drift were found.", "muted"))
    columns = source.details.columns
    shown = [column for column in columns if column.name not in source.hidden]
    if charted := _most_different(shown):
        blocks.append(_charts(charted, len(columns) + source.details.columns_omitted))
    if columns:
        blocks.append(_columns_table(source))
    elif summary.columns:
        blocks.append(_inferred_table(source))
    return Section("data", "Data", blocks) if blocks else None


def _is_validated(summary: RunSummary) -> bool:
    return any(
        component.name == ComponentId.EXAMPLE_VALIDATOR
        and component.state in (State.RAN, State.CACHED)
        for component in summary.components
    )


def _facts(source: ReportSource) -> Iterator[tuple[str, str]]:
    summary = source.summary
    total = sum(summary.examples.values())
    for split, count in summary.examples.items():
        yield split, f"{count:,} rows ({percent(count / total)})" if total else "0 rows"
    if summary.window is not None:
        yield "spans", listed(summary.window.spans, 7)
    names = len(source.details.columns) + source.details.columns_omitted or len(summary.columns)
    if names:
        yield "columns", f"{names:,}"
    if path := source.setting("data", "path"):
        yield "path", shorten(path)
    if label := source.setting("data", "label"):
        yield "label", shorten(label)


def _most_different(columns: Sequence[ColumnDetails]) -> list[ColumnDetails]:
    """Returns the columns with a distribution, those whose splits differ most first."""
    charted = [column for column in columns if _has_chart(column)]

    def difference(column: ColumnDetails) -> float:
        return max(column.distance or 0.0, column.drift or 0.0)

    return sorted(charted, key=difference, reverse=True)[:MAX_CHARTS]


def _has_chart(column: ColumnDetails) -> bool:
    splits = [*column.splits.values()]
    return any(one.histogram for one in splits) or bool(comparable_categories(splits))


def comparable_categories(of_splits: Sequence[SplitStatistics | None]) -> list[str]:
    """Returns the categories whose share is known in all splits, the most frequent first.

    The statistics of a split end after the most frequent categories: a category that is not among
    them may be as frequent as the last.
    """
    tops = [dict(one.top) if one else {} for one in of_splits]
    rests = [
        min(top.values(), default=0.0) if one and (one.unique or 0) > len(top) else 0.0
        for one, top in zip(of_splits, tops, strict=True)
    ]
    largest = {name: max(top.get(name, 0.0) for top in tops) for top in tops for name in top}
    return [
        name
        for name in sorted(largest, key=lambda name: -largest[name])
        if all(
            name in top or rest <= MAX_UNKNOWN * largest[name]
            for top, rest in zip(tops, rests, strict=True)
        )
    ]


def _charts(columns: Sequence[ColumnDetails], total: int) -> Multiples:
    splits = list(dict.fromkeys(name for column in columns for name in column.splits))[:MAX_SPLITS]
    note = "Columns whose distributions differ most between the splits come first."
    if len(columns) < total:
        verb = "has" if len(columns) == 1 else "have"
        note += f" {len(columns)} of {total:,} columns {verb} a chart; ignored and private columns "
        note += "have none."
    return Multiples("Distributions", [_chart(one, splits) for one in columns], splits, note)


def _chart(column: ColumnDetails, splits: Sequence[str]) -> Figure:
    of_splits = [column.splits.get(name) for name in splits]
    message = f"{shorten(column.name, 60)}: " + "; ".join(
        f"{name} {_gist(one)}" for name, one in zip(splits, of_splits, strict=True) if one
    )
    if any(one and one.histogram for one in of_splits):
        svg = small_charts.histograms([one.histogram if one else None for one in of_splits])
        note = _range(of_splits)
    else:
        svg, note = _categories(of_splits)
    if is_number(column.distance):
        note += f" · distance {_distance(column.distance)}"
    if is_number(column.drift):
        note += f" · drift {_distance(column.drift)}"
    return Figure(shorten(column.name, 40), message, svg, note=note.removeprefix(" · "))


def _distance(value: float | None) -> str:
    """Returns a distance between distributions, from 0 to 1."""
    if not is_number(value):
        return NONE
    return "<0.001" if 0 < value < 0.001 else f"{value:.2g}"


def _gist(one: SplitStatistics) -> str:
    if one.top:
        return "most frequent " + ", ".join(
            f"{shorten(value, 20)} {percent(share)}" for value, share in one.top[:3]
        )
    return f"mean {number(one.mean)}, median {number(one.median)}, {percent(one.missing)} missing"


def _range(of_splits: Sequence[SplitStatistics | None]) -> str:
    edges = [one.histogram.edges for one in of_splits if one and one.histogram]
    edges = [bounds for bounds in edges if bounds]
    if not edges:
        return ""
    low, high = min(bounds[0] for bounds in edges), max(bounds[-1] for bounds in edges)
    return f"{number(low)} to {number(high)}"


def _categories(of_splits: Sequence[SplitStatistics | None]) -> tuple[str, str]:
    tops = [dict(one.top) if one else {} for one in of_splits]
    shown = comparable_categories(of_splits)[:MAX_CATEGORIES]
    svg = small_charts.categories(shown, [[top.get(name, 0.0) for name in shown] for top in tops])
    unique = [one.unique for one in of_splits if one and one.unique]
    return svg, counted(max(unique), "value") if unique else ""


def _columns_table(source: ReportSource) -> Table:
    """Returns the table of all columns, folded if it is long."""
    columns = source.details.columns
    splits = list(dict.fromkeys(name for column in columns for name in column.splits))[:MAX_SPLITS]
    head = ["column", "type", "reason", *(f"missing in {split}" for split in splits)]
    head += ["unique", "mean", "median", "min", "max", "distance", "drift"]
    rows = [_row(column, splits, source) for column in columns]
    table = Table.capped("Columns", head, rows, 3, is_folded=len(rows) > 12)
    omitted = table.omitted + source.details.columns_omitted
    return Table(table.caption, table.head, table.rows, 3, table.is_folded, omitted)


def _row(column: ColumnDetails, splits: Sequence[str], source: ReportSource) -> list[str | Cell]:
    is_private = column.name in source.private
    first = next(iter(column.splits.values()), None)
    missing: list[str | Cell] = []
    for split in splits:
        one = column.splits.get(split)
        share = one.missing if one else None
        missing.append(Cell(percent(share), "warn" if share and share > 0.5 else ""))
    figures = (first.mean, first.median, first.min, first.max) if first and not is_private else ()
    inferred = source.summary.columns.get(column.name)
    return [
        shorten(column.name, 80),
        column.type,
        "private" if is_private else shorten(inferred.reason, 80) if inferred else "",
        *missing,
        number(first.unique if first else None),
        *(list(map(number, figures)) or [NONE] * 4),
        _distance(column.distance),
        _distance(column.drift),
    ]


def _inferred_table(source: ReportSource) -> Table:
    rows = [
        [
            shorten(name, 80),
            str(column.settings.get("type", "")),
            # Reasons name values, such as "numbers in text, such as '12 kg'".
            "private" if name in source.private else shorten(column.reason),
        ]
        for name, column in source.summary.columns.items()
    ]
    return Table.capped("Columns", ["column", "type", "reason"], rows, 3, is_folded=len(rows) > 12)
