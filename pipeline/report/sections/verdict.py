"""The first section: the outcome of the run, and its metrics against their requirements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.records.summary import ErrorSummary, MetricSummary, RunSummary, State, Status
from pipeline.report import charts
from pipeline.report.blocks import Block, Cell, Columns, Facts, Figure, Items, Note, Section, Table
from pipeline.report.source import ReportSource
from pipeline.report.text import NONE, interval, is_number, number, shorten

STATUS = {
    Status.RUNNING: ("Running", "warn"),
    Status.PUSHED: ("Pushed", "good"),
    Status.VALIDATED: ("Validated", "good"),
    Status.TUNED: ("Tuned", "good"),
    Status.NOT_BLESSED: ("Not blessed", "bad"),
    Status.HELD: ("Held", "warn"),
    Status.WAITS: ("Waits for approval", "warn"),
    Status.SUPERSEDED: ("Superseded", "warn"),
    Status.FAILED: ("Failed", "bad"),
    Status.UNUSABLE: ("Unusable", "bad"),
    Status.INTERRUPTED: ("Interrupted", "warn"),
}
"""The words and the kind of each status."""

_NEXT = {
    Status.UNUSABLE: "Correct the config or the data as the message says, and run again.",
    Status.FAILED: "Remove the cause, and run again; steps that have ended are not repeated.",
    Status.INTERRUPTED: "Run again; steps that have ended are not repeated.",
}
_UNFINISHED = "The run is in progress, or its process was killed. Run again to finish it."
MAX_RUNS = 60
"""The maximum number of earlier runs in the charts of metrics over time."""
MAX_HISTORIES = 3
"""The maximum number of metrics with such a chart."""


def make_verdict(source: ReportSource) -> Section:
    """Returns the section of the outcome, which every run has."""
    summary = source.summary
    blocks: list[Block] = [_outcome(summary), Facts(list(_facts(source)))]
    if summary.metrics:
        blocks.append(_metrics_table(summary))
        blocks.append(Columns([*_metrics_figure(source), *_history(source)]))
    if notes := _notes(summary):
        blocks.append(Items.capped("Notes", notes))
    return Section("verdict", "Verdict", blocks)


def _outcome(summary: RunSummary) -> Note:
    """Returns the outcome in words: an error with the next step, or the verdict with its reason."""
    if summary.error is not None:
        return _error(summary, summary.error)
    title, kind = STATUS[summary.status]
    reason = _sentence(summary)
    if summary.status is Status.RUNNING:
        return Note(_UNFINISHED, kind, title)
    if summary.status is Status.PUSHED:
        cached = all(one.state is State.CACHED for one in summary.components)
        text = f"{reason}\n" if reason else ""
        title = "Nothing has changed since the last push" if cached else "Blessed and pushed"
        return Note(f"{text}The model is in {summary.pushed}.", kind, title)
    if summary.waiting is not None:
        title = f"Blessed, not pushed: version {summary.waiting.version} {summary.status.value}"
        return Note("\n".join(filter(None, (summary.waiting.reason, reason))), kind, title)
    if summary.status is Status.NOT_BLESSED:
        title = "Blessed, but not pushed" if summary.blessed else "Not blessed, not pushed"
        return Note(reason or "The Evaluator gave no reason; see the log.", kind, title)
    ended = {
        Status.VALIDATED: "The data was read and checked; the run was not requested to do more.",
        Status.TUNED: "The search ended; the run was not requested to do more.",
    }
    return Note(ended.get(summary.status, reason), kind, title)


def _sentence(summary: RunSummary) -> str:
    """Returns the reason of the outcome as a sentence, whose first word may be a metric."""
    reason = (summary.reason or "").rstrip(".")
    if reason.partition(" ")[0] not in summary.metrics:
        reason = f"{reason[:1].upper()}{reason[1:]}"
    return f"{reason}." if reason else ""


def _error(summary: RunSummary, error: ErrorSummary) -> Note:
    title, kind = STATUS[summary.status]
    component = error.component
    title = f"{component}: {title.lower()}" if component else title
    log = f"The log is {error.log}." if error.log else ""
    following = " ".join(filter(None, (_NEXT.get(summary.status, ""), log)))
    return Note(f"{shorten(error.message, 4000)}\n\n{following}".strip(), kind, title)


def _facts(source: ReportSource) -> Iterator[tuple[str, str | Cell]]:
    summary, training = source.summary, source.summary.training
    if summary.pushed:
        yield "version", shorten(Path(summary.pushed).name, 40)
    if model := training.get("model"):
        yield "model", str(model)
    if summary.examples:
        yield "examples", ", ".join(f"{split}\u00a0{n:,}" for split, n in summary.examples.items())
    if summary.window is not None:
        count = len(summary.window.spans)
        yield "newest span", f"{summary.window.newest}{f' of {count}' if count > 1 else ''}"
    model_size = source.details.model
    if is_number(model_size.get("parameters")):
        yield "parameters", number(model_size["parameters"])
    states = [component.state for component in summary.components]
    done = [f"{states.count(state)} {state.value}" for state in State if state in states]
    if done:
        yield "steps", ", ".join(done)


def thresholds(source: ReportSource) -> dict[str, list[float]]:
    """Returns the bounds of each metric in the config as it was run."""
    declared = source.setting("evaluate", "thresholds")
    found: dict[str, list[float]] = {}
    for name, bounds in declared.items() if isinstance(declared, Mapping) else ():
        values = [_bound(bounds, key) for key in ("min", "max")]
        found[name] = [value for value in values if value is not None]
    return found


def _bound(bounds: Any, key: str) -> float | None:
    bound = bounds.get(key) if isinstance(bounds, Mapping) else None
    bound = bound.get("value") if isinstance(bound, Mapping) else bound
    return float(bound) if is_number(bound) else None


def _metrics_figure(source: ReportSource) -> Iterator[Figure]:
    bounds = thresholds(source)
    rows = []
    for name, metric in list(source.summary.metrics.items())[:20]:
        if not is_number(metric.value):
            continue
        row = {
            "name": shorten(name, 24),
            "value": metric.value,
            **_bounds(metric),
            "kind": _kind(metric) or "series-1",
            "mark": next(iter(bounds.get(name, [])), None),
            "other": metric.in_service if is_number(metric.in_service) else None,
        }
        # A value that has nothing beside it is in the table.
        if len({row[key] for key in ("value", "low", "high", "mark", "other")} - {None}) > 1:
            rows.append(row)
    if not rows:
        return
    keys = [
        "Dot and bar: value and confidence interval" if _has_intervals(source.summary) else "",
        "line: threshold" if any(row["mark"] is not None for row in rows) else "",
        "diamond: model in service" if any(row["other"] is not None for row in rows) else "",
    ]
    words = "; ".join(filter(None, keys))
    svg = charts.intervals(rows, "", by_panel=True)
    message = ". ".join(map(_describe, *zip(*source.summary.metrics.items(), strict=True)))
    yield Figure("Metrics on the eval split", message, svg, note=f"{words}." if words else "")


def _has_intervals(summary: RunSummary) -> bool:
    return any(metric.interval for metric in summary.metrics.values())


def _kind(metric: MetricSummary) -> str:
    if metric.needs:
        return "good" if metric.ok else "bad"
    return "" if metric.ok else "bad"


def _describe(name: str, metric: MetricSummary) -> str:
    parts = [f"{name} {number(metric.value)}"]
    if metric.interval:
        parts.append(f"interval {interval(metric.interval)}")
    if metric.in_service is not None:
        parts.append(f"in service {number(metric.in_service)}")
    if metric.needs:
        parts.append(f"needs {metric.needs}: {'met' if metric.ok else 'not met'}")
    return ", ".join(parts)


def _metrics_table(summary: RunSummary) -> Table:
    metrics = summary.metrics.values()
    has_intervals = _has_intervals(summary)
    has_service = any(metric.in_service is not None for metric in metrics)
    has_difference = any(metric.difference is not None for metric in metrics)
    head = ["metric", "requirement", "value"]
    head += ["interval"] if has_intervals else []
    head += ["in service"] if has_service else []
    head += ["difference"] if has_difference else []
    rows: list[list[str | Cell]] = []
    for name, metric in summary.metrics.items():
        needs = Cell(_requirement(metric), _kind(metric) or "muted")
        row: list[str | Cell] = [shorten(name), needs, Cell(number(metric.value), _kind(metric))]
        row += [interval(metric.interval)] if has_intervals else []
        row += [number(metric.in_service)] if has_service else []
        row += [interval(metric.difference)] if has_difference else []
        rows.append(row)
    return Table.capped("Metrics", head, rows, 2)


def _requirement(metric: MetricSummary) -> str:
    if not metric.needs:
        return NONE if metric.ok else "not met"
    return f"{metric.needs}: {'met' if metric.ok else 'not met'}"


def _history(source: ReportSource) -> Iterator[Figure]:
    """Yields charts of the metrics of earlier runs and of this run."""
    earlier = [run for run in source.history if run.run_id != source.summary.run_id]
    runs = [*earlier[-MAX_RUNS:], source.summary]
    for name in list(source.summary.metrics)[:MAX_HISTORIES]:
        rows = [_of_run(run, run.metrics[name]) for run in runs if _has_value(run, name)]
        if len(rows) > 2:
            values = [row["value"] for row in rows]
            message = f"{name} in {len(rows)} runs: {number(min(values))} to {number(max(values))}"
            message += f", now {number(values[-1])}"
            yield Figure(f"{name} by run", message, charts.over_runs(rows))


def _has_value(run: RunSummary, name: str) -> bool:
    return name in run.metrics and is_number(run.metrics[name].value)


def _of_run(run: RunSummary, metric: MetricSummary) -> dict[str, Any]:
    newest = run.window.newest if run.window else run.started[:10]
    kind = STATUS[run.status][1]
    return {"name": shorten(newest, 24), "kind": kind, "value": metric.value} | _bounds(metric)


def _bounds(metric: MetricSummary) -> dict[str, float]:
    """Returns the interval of a metric, or its value twice."""
    low, high = metric.interval or (metric.value, metric.value)
    known = is_number(low) and is_number(high)
    return {"low": low, "high": high} if known else {"low": metric.value, "high": metric.value}


def _notes(summary: RunSummary) -> list[str]:
    restarts = [f"{cause}, and training resumed" for cause in summary.training.get("restarts", [])]
    training = summary.training.get("notes", [])
    return [*summary.notes, *training, *restarts]
