"""Implements `scopeline models`: lists each version with its state and the reason for the state."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from components.example_gen.paths import is_remote
from components.pusher.variants import accepted_variants, read_manifest
from pipeline.config.sections.data import has_spans, span_kind
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.runs.console import show_path
from pipeline.versions.catalog import Version, find_serving, pushed_at, read_catalog
from pipeline.versions.hold import Hold, read_hold
from pipeline.versions.waiting import Waiting, how_to_push, still_waiting
from trainer_module.errors import DataError

_TIME = "%Y-%m-%d %H:%M"
_NO_TERMINAL_WIDTH = 100
"""The number of characters in a line if the output is not a terminal."""
_COLUMNS = ("version", "pushed", "state", "kind", "strategy")
_MAX_KIND_LENGTH = 24
"""The maximum length of a model's kind in the table. A kind may be a long import path."""
_NEWER = "is newer"
"""The last words of the reason why a version is replaced."""
_INDENT = 12
"""The indentation of the lines below a version: the width of its number and of the gap."""


def show_models(config: PipelineConfig, output: Path, as_json: bool) -> None:
    """Lists the pushed versions, newest first; reads all their files to find damaged versions.

    Raises:
      ConfigError: the event log cannot be used, or a hold cannot be read.
    """
    layout = Layout.of(config.name, config.push, output)
    event_log = EventLog(layout.event_log)
    catalog = read_catalog(layout, event_log)
    waiting = [model for model in still_waiting(event_log) if model.has_files(layout)]
    hold, serving = read_hold(layout), find_serving(catalog)
    rollbacks = {e.details["version"]: e for e in event_log.events(EventKind.ROLLED_BACK)}
    listed = [
        _fields(version, config, layout, serving, rollbacks.get(version.number))
        for version in catalog
    ]
    listed += [_waiting_fields(model, config, layout, hold) for model in waiting]
    listed.sort(key=lambda fields: fields["version"], reverse=True)
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
        return
    if listed:
        width = shutil.get_terminal_size((_NO_TERMINAL_WIDTH, 0)).columns
        for line in _table(listed, width):
            typer.echo(line)
    if not catalog:
        typer.echo(f"{show_path(layout.serving)}: no version has been pushed yet")
    if hold is not None:
        typer.echo(str(hold))
    for event in event_log.events(EventKind.BLESSED, EventKind.NOT_BLESSED, newest=1):
        if event.kind is EventKind.NOT_BLESSED:
            typer.echo(f"run {event.run}: the model was not blessed: {event.message}")


def _fields(
    version: Version,
    config: PipelineConfig,
    layout: Layout,
    serving: Version | None,
    rollback: LoggedEvent | None,
) -> dict[str, Any]:
    """Returns the fields of a version for JSON."""
    metrics = version.details.get("metrics", {})
    state, reason = _state(version, serving, rollback)
    return {
        "version": version.number,
        "path": version.path,
        "pushed": pushed_at(version).isoformat(timespec="seconds"),
        "state": state,
        "why": reason,
        "serves": version is serving,
        "waits": False,
        "withdrawn": version.withdrawn,
        "damaged": version.damage or version.variant_damage or None,
        "reason": version.reason,
        "copy_of": version.provenance.copy_of,
        "window": _window(version.details, config),
        "kind": _kind(version.details, version.provenance.run, layout),
        "strategy": version.details.get("strategy"),
        # JSON has no NaN and no infinities.
        "metrics": {k: v if v is not None and isfinite(v) else None for k, v in metrics.items()},
        "variants": _variants(version),
        "model": version.model,
        "run": version.provenance.run,
    }


def _waiting_fields(
    model: Waiting, config: PipelineConfig, layout: Layout, hold: Hold | None
) -> dict[str, Any]:
    """Returns the fields of a waiting model for JSON, with the keys of `_fields`."""
    damage, reason = model.damage(layout), how_to_push(model.number, hold)
    state, reason = ("waits", f"not approved yet; {reason}") if hold is None else ("held", reason)
    return {
        "version": model.number,
        "path": None,
        "pushed": None,
        "state": "damaged" if damage else state,
        "why": damage or reason,
        "serves": False,
        "waits": True,
        "withdrawn": False,
        "damaged": damage or None,
        "reason": reason,
        "copy_of": None,
        "window": _window(model.details, config),
        "kind": _kind(model.details, model.run, layout),
        "strategy": model.details.get("strategy"),
        "metrics": model.details.get("metrics", {}),
        "variants": _waiting_variants(model, layout),
        "model": model.model,
        "run": model.run,
    }


def _state(
    version: Version, serving: Version | None, rollback: LoggedEvent | None
) -> tuple[str, str]:
    """Returns the state of a version, and the reason, which may be empty for the served version."""
    state, reasons = "replaced", []
    if version.damage or version.variant_damage:
        state = "damaged"
        reasons.append(version.damage or version.variant_damage)
    if version.withdrawn:
        state = "withdrawn"
        reasons.insert(0, ": ".join(filter(None, (version.withdrawal, version.reason))))
    origin = []
    if version.provenance.copy_of is not None:
        origin.append(f"copy of version {version.provenance.copy_of}")
    if rollback is not None:  # The copy may have lost the file with its provenance.
        why = f": {rollback.details['reason']}" if rollback.details.get("reason") else ""
        origin.append(f"by `rollback` on {rollback.at.astimezone():{_TIME}}{why}")
    if origin:
        reasons.append(", ".join(origin))
    if not version.is_ours:
        reasons.append("not pushed by this pipeline")
    if not reasons and version is not serving and serving is not None:
        reasons.append(f"version {serving.number} {_NEWER}")
    return "serves" if version is serving else state, "; ".join(filter(None, reasons))


def _kind(details: dict[str, Any], run: str | None, layout: Layout) -> str | None:
    """Returns the model's kind, from the details or, if they lack it, from the run's summary."""
    kind: str | None = details.get("model_kind")
    if kind is not None or run is None:
        return kind
    try:
        summary = json.loads(layout.run(run).summary.read_text())
        return str(summary["training"]["model"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _window(details: dict[str, Any], config: PipelineConfig) -> list[str]:
    """Returns the spans that the model was trained on, or no spans for data without spans."""
    if not has_spans(config.data):
        return []
    return [span_kind(config.data).show(number) for number in details.get("window", [])]


def _variants(version: Version) -> list[str]:
    """Returns the names of a version's variants, or no names for a remote folder."""
    if is_remote(version.path):
        return []
    try:
        return list(read_manifest(Path(version.path)))
    except DataError:
        return ["damaged"]


def _waiting_variants(model: Waiting, layout: Layout) -> list[str]:
    folder = model.variants_in(layout)
    return [] if folder is None or is_remote(str(folder)) else accepted_variants(folder)


def _table(listed: Sequence[dict[str, Any]], width: int) -> Iterator[str]:
    """Yields the lines of a table that is not wider than a terminal.

    Below the row of a version are the reason for its state, its data and its variants. The metrics
    are the last column, or stand below the row if the terminal is too narrow.
    """
    rows = [_COLUMNS, *map(_row, listed)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    metrics = [_metrics(fields) for fields in listed]
    room = width - sum(widths) - 2 * len(widths)
    has_column = room >= max(len(f"{text},") for row in metrics for text in (*row, "metrics"))
    titles = ["metrics"] if has_column and any(metrics) else []
    yield _line([column[0] for column in columns], widths, titles, room)
    for index, fields in enumerate(listed):
        cells = [column[index + 1] for column in columns]
        yield _line(cells, widths, metrics[index] if has_column else [], room)
        details = _details(fields)
        if not has_column and metrics[index]:
            details.append(", ".join(metrics[index]))
        for detail in details:
            indent = " " * _INDENT
            yield textwrap.fill(
                detail,
                width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_on_hyphens=False,
            )


def _line(cells: Sequence[str], widths: Sequence[int], metrics: Sequence[str], room: int) -> str:
    """Returns a row of the table, with its metrics in the last column on one or more lines."""
    row = "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))
    # No line break separates a metric from its value.
    unbroken = ", ".join(metric.replace(" ", "\xa0") for metric in metrics)
    lines = textwrap.wrap(unbroken, room, break_long_words=False) if unbroken else [""]
    cell = f"\n{' ' * len(row)}".join(lines).replace("\xa0", " ")
    return f"{row}{cell}".rstrip()


def _row(fields: dict[str, Any]) -> tuple[str, ...]:
    """Returns the cells of a version or a waiting model, from the fields of its JSON."""
    pushed, kind = fields["pushed"], fields["kind"] or ""
    return (
        str(fields["version"]),
        datetime.fromisoformat(pushed).strftime(_TIME) if pushed else "",
        fields["state"],
        kind if len(kind) <= _MAX_KIND_LENGTH else f"...{kind[3 - _MAX_KIND_LENGTH :]}",
        fields["strategy"] or "",
    )


def _metrics(fields: dict[str, Any]) -> list[str]:
    metrics = fields["metrics"].items()
    return [f"{name} {value:.4g}" for name, value in metrics if value is not None]


def _details(fields: dict[str, Any]) -> list[str]:
    """Returns the lines below a row: the reason for the state, the data and the variants."""
    # The order of the table shows already that another version is newer.
    lines = [] if fields["why"].endswith(_NEWER) else [fields["why"]]
    window = fields["window"]
    if len(window) > 1:
        lines.append(f"spans {window[0]} to {window[-1]} ({len(window)})")
    else:
        lines += [f"span {name}" for name in window]
    lines.append(", ".join(fields["variants"]) and f"variants {', '.join(fields['variants'])}")
    return [line for line in lines if line]
