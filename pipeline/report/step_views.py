"""Views of a component's results for the terminal, from the summary of a run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from pipeline.component_ids import ComponentId
from pipeline.config.issues import near_match
from pipeline.records.summary import RunSummary
from pipeline.report.text import NONE, duration, interval, is_number, number, percent, shorten, size
from trainer_module.errors import ConfigError, counted


@dataclass(frozen=True)
class View:
    """A table with a title."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    omitted: int = 0
    """The number of further rows."""

    @classmethod
    def of(
        cls, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], limit: int
    ) -> View:
        """Returns a view of the first `limit` rows."""
        return cls(title, heads, rows[:limit], max(0, len(rows) - limit))

    @classmethod
    def of_facts(cls, title: str, facts: dict[str, str]) -> View:
        """Returns a view of names and values."""
        return cls(title, ("", ""), [(name, text) for name, text in facts.items() if text])


def find_component(name: str) -> ComponentId:
    """Returns the component of a name in any case; raises ConfigError for an unknown name."""
    for component in ComponentId:
        if component.lower() == name.lower():
            return component
    raise ConfigError(f"{name}: there is no such component; {near_match(name, ComponentId)}")


def check_ran(summary: RunSummary, component: ComponentId) -> None:
    """Raises ConfigError if a component did not run, or failed, in a run."""
    states = {done.name: done.state.value for done in summary.components}
    state = states.get(component)
    if state in ("ran", "cached"):
        return
    reason = "did not run" if state is None else f"was {state}" if state == "skipped" else state
    if summary.error is not None:
        reason += f"; the run ended with: {summary.error.message}"
    others = ", ".join(name for name, state in states.items() if state in ("ran", "cached"))
    raise ConfigError(
        f"run {summary.run_id}: {component} {reason}"
        + (f"; the run has results of {others}" if others else "; the run has no results")
    )


def view_summary(summary: RunSummary, component: ComponentId, rows: int) -> list[View]:
    """Returns the views of a component's results in a summary.

    Args:
      summary: the summary of a run in which the component ran.
      rows: the maximum number of rows of a table.
    """
    return [view for view in _VIEWS.get(component, _no_views)(summary, rows) if view.rows]


def _no_views(summary: RunSummary, rows: int) -> Iterator[View]:
    del summary, rows
    yield from ()


def _view_examples(summary: RunSummary, rows: int) -> Iterator[View]:
    splits = [(split, f"{count:,}") for split, count in summary.examples.items()]
    yield View.of("Rows", ("split", "rows"), splits, rows)


def _view_columns(summary: RunSummary, rows: int) -> Iterator[View]:
    types = [
        (name, str(column.settings.get("type", NONE)), column.reason)
        for name, column in summary.columns.items()
    ]
    yield View.of("Inferred types", ("column", "type", "reason"), types, rows)


def _view_anomalies(summary: RunSummary, rows: int) -> Iterator[View]:
    found = [("anomaly", text) for text in summary.anomalies]
    found += [("drift", text) for text in summary.drift]
    yield View.of("Findings", ("", ""), found or [("", "no anomalies and no drift")], rows)


def _view_tuning(summary: RunSummary, rows: int) -> Iterator[View]:
    tuning = summary.tuning
    trials = [
        (
            str(trial.get("number", NONE)),
            number(trial.get("value")),
            ", ".join(f"{k} {_short(v)}" for k, v in dict(trial.get("values") or {}).items()),
        )
        for trial in tuning.get("trials", [])
    ]
    objective = str(tuning.get("objective", "value"))
    yield View.of(
        f"Trials (best: {tuning.get('best')})", ("trial", objective, "values"), trials, rows
    )


def _view_training(summary: RunSummary, rows: int) -> Iterator[View]:
    training = summary.training
    names = (
        "model",
        "strategy",
        "precision",
        "workers",
        "replicas",
        "epochs",
        "best_epoch",
        "trees",
    )
    facts = {name: _short(training[name]) for name in names if name in training}
    facts["time"] = duration(training.get("seconds"))
    yield View.of_facts("Training", facts)
    history: dict[str, list[float]] = training.get("history") or {}
    epochs = max(map(len, history.values()), default=0)
    # The last epochs decide the model.
    lines = [
        (str(epoch + 1), *(number(v[epoch]) if epoch < len(v) else NONE for v in history.values()))
        for epoch in range(max(0, epochs - rows), epochs)
    ]
    yield View("Last epochs", ("epoch", *history), lines, max(0, epochs - rows))
    members: dict[str, dict[str, Any]] = training.get("members") or {}
    pairs = [
        (
            name,
            percent(member.get("weight")),
            number(member.get("unseen_loss")),
            duration(member.get("seconds")),
        )
        for name, member in sorted(members.items(), key=lambda m: -(m[1].get("weight") or 0.0))
    ]
    if members and is_number(training.get("unseen_loss")):
        pairs.append(("ensemble", "100%", number(training["unseen_loss"]), ""))
    yield View.of("Members", ("member", "weight", "loss on unseen rows", "time"), pairs, rows)


def _view_evaluation(summary: RunSummary, rows: int) -> Iterator[View]:
    verdict = {True: "blessed", False: "not blessed"}.get(bool(summary.blessed), "")
    yield View.of_facts("Verdict", {verdict: summary.reason or NONE})
    metrics = [
        (
            name,
            number(metric.value),
            interval(metric.interval),
            number(metric.in_service),
            metric.needs,
            "" if metric.ok else "not met",
        )
        for name, metric in summary.metrics.items()
    ]
    yield View.of(
        "Metrics", ("metric", "value", "interval", "in service", "threshold", ""), metrics, rows
    )
    found = [name for values in summary.slices.values() for name in values]
    names = list(dict.fromkeys(["example_count", *summary.metrics, *found]))
    names = [name for name in names if name in found]
    slices = [
        (shorten(name, 60), *(number(values.get(metric)) for metric in names))
        for name, values in summary.slices.items()
    ]
    yield View.of("Slices", ("slice", *names), slices, rows)


def _view_certificate(summary: RunSummary, rows: int) -> Iterator[View]:
    certificate = summary.certificate
    if certificate is None:
        return
    title = f"Agreement with {certificate.expected_by} on {counted(certificate.rows, 'row')}"
    interfaces = [
        (name, number(way.largest_difference), way.row) for name, way in certificate.ways.items()
    ]
    yield View.of(title, ("interface", "largest difference", "row"), interfaces, rows)
    yield View.of_facts("Result", {"failure": certificate.failure})


def _view_variants(summary: RunSummary, rows: int) -> Iterator[View]:
    report = summary.variants
    yield View.of_facts("Optimizer", {"skipped": str(report.get("skipped") or "")})
    metric = str(report.get("metric", ""))
    lines = [
        (
            str(variant.get("name")),
            "accepted" if variant.get("accepted") else "; ".join(variant.get("reasons") or []),
            size(variant.get("bytes")),
            number((variant.get("metrics") or {}).get(metric)),
        )
        for variant in report.get("variants") or []
    ]
    yield View.of("Variants", ("variant", "", "size", metric), lines, rows)


def _view_push(summary: RunSummary, rows: int) -> Iterator[View]:
    if summary.pushed is None:
        waiting = summary.waiting
        yield View.of_facts("Pusher", {"nothing was pushed": waiting.reason if waiting else NONE})
        return
    facts = {"version": Path(summary.pushed).name, "folder": summary.pushed}
    if is_remote(summary.pushed):
        yield View.of_facts("Pusher", facts)
        return
    folder = Path(summary.pushed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        facts["files"] = "deleted: retention keeps schedule.keep.versions versions"
    yield View.of_facts("Pusher", facts)
    lines = [(path.relative_to(folder).as_posix(), size(path.stat().st_size)) for path in files]
    yield View.of("Files", ("file", "size"), lines, max(rows, 20))


def _short(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


_VIEWS: dict[str, Callable[[RunSummary, int], Iterator[View]]] = {
    ComponentId.EXAMPLE_GEN: _view_examples,
    ComponentId.SCHEMA_GEN: _view_columns,
    ComponentId.EXAMPLE_VALIDATOR: _view_anomalies,
    ComponentId.TUNER: _view_tuning,
    ComponentId.TRAINER: _view_training,
    ComponentId.EVALUATOR: _view_evaluation,
    ComponentId.INFRA_VALIDATOR: _view_certificate,
    ComponentId.OPTIMIZER: _view_variants,
    ComponentId.PUSHER: _view_push,
}
