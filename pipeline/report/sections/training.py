"""The section about the training: losses by epoch, members of an ensemble, folds and trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.report import charts
from pipeline.report.blocks import Block, Cell, Columns, Facts, Figure, Items, Section, Table
from pipeline.report.source import ReportSource
from pipeline.report.text import duration, is_number, number, percent, shorten
from trainer_module.errors import counted

MAX_POINTS = 300
"""The maximum number of epochs in a chart; of more, evenly spaced epochs are drawn."""
MAX_METRICS = 5
"""The maximum number of charts of metrics, beside the chart of the loss."""
_RATE = "learning_rate"


def make_training(source: ReportSource) -> Section | None:
    """Returns the section of the training, or None if no model was trained."""
    training = source.summary.training
    if not training:
        return None
    blocks: list[Block] = [Facts(list(_facts(training)))]
    if figures := _histories(training):
        blocks.append(Columns(figures))
    blocks += filter(None, (_members(training), _folds(training), _importances(training)))
    if restarts := training.get("restarts"):
        blocks.append(Items.capped("Restarts", restarts))
    return Section("training", "Training", blocks)


def _facts(training: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "model", shorten(training.get("model", ""))
    if training.get("epochs"):
        best = f", best {training['best_epoch']}" if training.get("best_epoch") else ""
        yield "epochs", f"{number(training['epochs'])}{best}"
    if "trees" in training:
        yield "trees", number(training["trees"])
    yield "time", duration(training.get("seconds"))
    for key, title, unit in (
        ("examples_per_second", "throughput", " examples/s"),
        ("global_batch_size", "batch", " examples"),
        ("steps", "steps", ""),
    ):
        if training.get(key):
            yield title, f"{number(training[key])}{unit}"
    workers, replicas = training.get("workers"), training.get("replicas")
    extent = [counted(workers, "worker")] if isinstance(workers, int) else []
    extent += [counted(replicas, "replica")] if isinstance(replicas, int) else []
    yield "strategy", ", ".join([shorten(training.get("strategy", "")), *extent])
    for key in ("loop", "precision", "source"):
        if training.get(key):
            yield {"source": "examples from"}.get(key, key), shorten(training[key])
    if training.get("warm_start"):
        yield "warm start", shorten(training["warm_start"])
    if training.get("resumed_at_step"):
        yield "resumed at step", number(training["resumed_at_step"])
    for key, title in (("temperature", "temperature"), ("calibration_error", "calibration error")):
        if is_number(training.get(key)):
            yield title, number(training[key])
    sparsity = training.get("sparsity")
    if isinstance(sparsity, Mapping) and is_number(sparsity.get("overall")):
        yield "weights that are zero", percent(sparsity["overall"])


def _histories(training: Mapping[str, Any]) -> list[Figure]:
    """Returns a chart for the loss, for each metric and for the learning rate, by epoch."""
    history = training.get("history")
    if not isinstance(history, Mapping):
        return []
    names = [name for name in history if not name.startswith("val_") and name != _RATE]
    figures = [_history(name, history) for name in names[: MAX_METRICS + 1]]
    if _varies(history.get(_RATE)):
        figures.append(_history(_RATE, history))
    return [figure for figure in figures if figure is not None]


def _varies(values: Any) -> bool:
    return isinstance(values, Sequence) and len(set(values)) > 1


def _history(name: str, history: Mapping[str, Any]) -> Figure | None:
    series = {"train": history.get(name), "eval": history.get(f"val_{name}")}
    rows, gists = [], []
    for label, values in series.items():
        if not isinstance(values, Sequence):
            continue
        points = [(i + 1, value) for i, value in enumerate(values) if is_number(value)]
        step = max(1, -(-len(points) // MAX_POINTS))
        rows += [{"x": x, "y": y, "series": label} for x, y in points[::step]]
        if points:
            gists.append(f"{label} from {number(points[0][1])} to {number(points[-1][1])}")
    if len({row["x"] for row in rows}) < 2:
        return None
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    title = shorten(name.replace("_", " "), 40)
    svg = charts.lines(rows, "epoch", None, names, height=150)
    return Figure(f"{title} by epoch", f"{title} by epoch: {'; '.join(gists)}", svg)


def _members(training: Mapping[str, Any]) -> Table | None:
    members = training.get("members")
    if not isinstance(members, Mapping) or not members:
        return None
    ranked = sorted(members.items(), key=lambda item: -(item[1].get("weight") or 0.0))
    rows: list[list[str | Cell]] = [
        [
            Cell(name, "" if member.get("weight") else "muted"),
            Cell(percent(member.get("weight")), "" if member.get("weight") else "muted"),
            number(member.get("unseen_loss")),
            duration(member.get("seconds")),
        ]
        for name, member in ranked
    ]
    if is_number(training.get("unseen_loss")):
        rows.append(["ensemble", "100%", Cell(number(training["unseen_loss"])), ""])
    return Table.capped("Members", ["member", "weight", "loss on unseen rows", "time"], rows)


def _folds(training: Mapping[str, Any]) -> Table | None:
    folds = training.get("folds")
    if not isinstance(folds, Mapping):
        return None
    rows = []
    for name, values in folds.items():
        if isinstance(values, Mapping) and is_number(values.get("mean")):
            rows.append([shorten(name), number(values["mean"]), number(values.get("deviation"))])
    head = ["metric", "mean", "standard deviation"]
    return Table.capped("Cross-validation", head, rows) if rows else None


def _importances(training: Mapping[str, Any]) -> Table | None:
    """Returns the importances of trees, which the training measures by their splits."""
    importances = training.get("importances")
    if not isinstance(importances, Mapping) or not importances:
        return None
    rows = [[shorten(name, 80), number(value)] for name, value in importances.items()]
    return Table.capped("Importances of the trees", ["column", "importance"], rows, is_folded=True)
