"""Makes the pages of `report --serve`: the list of runs, and the comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlencode

from pipeline.records.run_folders import StoredRun, every_run
from pipeline.records.summary import RunSummary
from pipeline.report.blocks import Block, Note, Section, Table
from pipeline.report.comparison import Comparison, Difference, MetricDifference, compare_runs
from pipeline.report.rendering import render
from pipeline.report.sections.verdict import STATUS
from pipeline.report.text import NONE, duration, interval, number, shorten, signed, size, yes_or_no
from trainer_module.errors import DataError

DAMAGED = "damaged"
"""The status that the list shows for a run without a readable summary."""
PAGE_ROWS = 200
"""The number of runs on a page of the list."""
_METRICS = 3
_SORTS = {"started": "began", "pipeline": "pipeline", "status": "status", "seconds": "seconds"}
"""The orders of the list, each with the attribute of a row."""


@dataclass(frozen=True)
class RunRow:
    """A run in the list."""

    pipeline: str
    id: str
    started: str
    began: float
    """The start in seconds since 1970."""
    status: str
    label: str
    """The status in words."""
    kind: str
    """The class of the status in the style sheet."""
    blessed: str
    model: str
    metrics: str
    seconds: float
    problem: str = ""
    """The damage of the summary, or an empty string."""

    @property
    def key(self) -> str:
        """The name of the run in addresses."""
        return f"{self.pipeline}/{self.id}"

    @property
    def address(self) -> str:
        """The address of the report."""
        return f"/runs/{quote(self.pipeline, safe='')}/{quote(self.id, safe='')}"

    @property
    def duration(self) -> str:
        """The duration of the run in words."""
        return NONE if self.problem else duration(self.seconds)


@dataclass(frozen=True)
class Query:
    """The filters and the order of the list, from the address."""

    pipeline: str = ""
    status: str = ""
    sort: str = "started"
    is_ascending: bool = False
    page: int = 1

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Query:
        """Returns the query of an address; invalid values count as missing."""
        sort = values.get("sort", "").removeprefix("-")
        page = values.get("page", "")
        return cls(
            values.get("pipeline", ""),
            values.get("status", ""),
            sort if sort in _SORTS else "started",
            sort in _SORTS and not values["sort"].startswith("-"),
            int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 7 else 1,
        )

    @property
    def address(self) -> str:
        """The address of the list with this query."""
        sign = "" if self.is_ascending else "-"
        values = {
            "pipeline": self.pipeline,
            "status": self.status,
            "sort": f"{sign}{self.sort}",
            "page": str(self.page) if self.page > 1 else "",
        }
        return "/?" + urlencode({key: value for key, value in values.items() if value})

    def sorted_by(self, sort: str) -> Query:
        """Returns the query in the order of a column; the opposite order if it has it already."""
        return replace(
            self, sort=sort, is_ascending=self.sort == sort and not self.is_ascending, page=1
        )


def read_row(run: StoredRun) -> RunRow:
    """Returns a run's row of the list."""
    try:
        stat = run.files.summary.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
    except OSError:
        stamp = (0, 0)
    return _read_row(run, stamp)


# The list shows all runs, and summaries may have a megabyte.
@lru_cache(maxsize=20_000)
def _read_row(run: StoredRun, stamp: tuple[int, int]) -> RunRow:
    del stamp
    try:
        summary = run.read()
    except DataError as error:
        return RunRow(
            *(run.pipeline, run.id, run.id, run.began, DAMAGED, "Damaged", "bad", "", "", "", 0.0),
            problem=str(error),
        )
    label, kind = STATUS[summary.status]
    metrics = list(summary.metrics.items())
    return RunRow(
        run.pipeline,
        run.id,
        summary.started.replace("T", " ")[:19],
        run.began,
        summary.status.value,
        label,
        kind,
        yes_or_no(summary.blessed),
        str(summary.training.get("model") or NONE),
        ", ".join(f"{shorten(n, 40)} {number(m.value)}" for n, m in metrics[:_METRICS]),
        summary.seconds,
    )


def make_list(output: Path, query: Query) -> str:
    """Returns the page with the runs of all pipelines below an output folder."""
    everything = [read_row(run) for run in every_run(output)]
    rows = [
        row
        for row in everything
        if query.pipeline in ("", row.pipeline) and query.status in ("", row.status)
    ]
    # Runs with equal values stay in the order of their starts.
    rows.sort(key=lambda row: row.began, reverse=True)
    rows.sort(key=lambda row: getattr(row, _SORTS[query.sort]), reverse=not query.is_ascending)
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(query.page, pages)
    shown = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return render(
        "runs.html.j2",
        title="Runs",
        output=str(output),
        rows=shown,
        chosen=_choose_two(shown),
        count=len(rows),
        total=len(everything),
        query=query,
        pipelines=sorted({row.pipeline for row in everything}),
        statuses=sorted({(row.status, row.label) for row in everything}),
        earlier=replace(query, page=page - 1).address if page > 1 else None,
        later=replace(query, page=page + 1).address if page < pages else None,
        sorts={sort: query.sorted_by(sort).address for sort in _SORTS},
    )


def _choose_two(rows: Sequence[RunRow]) -> tuple[str, str]:
    """Returns the keys of the first two runs of the same pipeline, the earlier first."""
    readable = [row for row in rows if not row.problem]
    for i, row in enumerate(readable):
        for other in readable[i + 1 :]:
            if other.pipeline == row.pipeline:
                before, after = sorted((row, other), key=lambda one: one.began)
                return before.key, after.key
    return (readable[-1].key, readable[0].key) if readable else ("", "")


def make_comparison(first: RunSummary, second: RunSummary) -> str:
    """Returns the page that compares two runs."""
    comparison = compare_runs(first, second)
    return render(
        "comparison.html.j2",
        title="Comparison of two runs",
        heading="Comparison of two runs",
        status=None,
        subtitle=f"{_name(first)} and {_name(second)}",
        sections=list(_sections(comparison)),
        footer="Made by Scopeline from the summaries of the runs.",
    )


def _name(summary: RunSummary) -> str:
    return f"{summary.pipeline} {summary.run_id}"


def _sections(comparison: Comparison) -> Iterator[Section]:
    notes: list[Block] = [Note(note) for note in comparison.notes]
    yield Section("result", "Result", [_differences("Status and model", comparison.results)])
    if comparison.metrics:
        yield Section("metrics", "Metrics", [_metrics(comparison.metrics), *notes])
    config = _differences("Keys of the config that differ", comparison.config)
    code = _differences("Code and packages that differ", comparison.code)
    yield Section("config", "Config and code", [config, code] if comparison.code else [config])
    changes = [(change.name, change.change) for change in comparison.columns]
    data: list[Block] = [_differences("Spans and rows", comparison.data)]
    if changes:
        data.append(Table.capped("Columns of train that differ", ("column", "change"), changes, 2))
    yield Section("data", "Data", data)
    yield Section("steps", "Time and costs", [_steps(comparison)])


def _differences(caption: str, differences: Sequence[Difference]) -> Block:
    if not differences:
        return Note(f"{caption}: none, or not recorded.", "muted")
    rows = [(shorten(d.name), shorten(d.first), shorten(d.second)) for d in differences]
    return Table.capped(caption, ("name", "first", "second"), rows, 3)


def _metrics(metrics: Iterable[MetricDifference]) -> Table:
    rows = [
        (
            metric.name,
            *(number(run.value) if run else NONE for run in (metric.first, metric.second)),
            signed(metric.difference),
            interval(metric.interval),
            metric.verdict,
        )
        for metric in metrics
    ]
    head = ("metric", "first", "second", "difference", "interval of the difference", "verdict")
    return Table.capped("Metrics on the eval split", head, rows)


def _steps(comparison: Comparison) -> Table:
    rows = [
        (
            step.name,
            *(f"{s} {duration(t)}" for s, t in zip(step.states, step.seconds, strict=True)),
            *map(duration, step.cpu_seconds),
            *map(size, step.peak_bytes),
        )
        for step in comparison.steps
    ]
    times = (duration(comparison.first.seconds), duration(comparison.second.seconds))
    rows.append(("whole run", *times, "", "", "", ""))
    head = ("component", "first", "second", "CPU, first", "second", "memory, first", "second")
    return Table.capped("Time and costs by component", head, rows)
