"""What `models` and `rollback` show and do."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from pipeline.config.settings import PipelineConfig
from pipeline.config.span_patterns import has_spans, is_dated, show_span
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.runs.console import shown
from pipeline.versions.catalog import Version, pushed_at, read_catalog
from pipeline.versions.rollback import RollbackRequest, roll_back
from pipeline.versions.withdrawal import withdraw


def show_models(config: PipelineConfig, output: Path, as_json: bool) -> None:
    """Lists the pushed versions, newest first.

    Args:
      config: a checked config.
      output: the output folder.
      as_json: for programs.

    Raises:
      ConfigError: the event log cannot be used.
    """
    layout = Layout.of(config, output)
    catalog = read_catalog(layout, EventLog(layout.event_log))
    if as_json:
        typer.echo(json.dumps([_fields(version, config) for version in catalog], indent=2))
    elif not catalog:
        typer.echo(f"{shown(layout.serving)}: no version has been pushed yet")
    else:
        _show_table([_row(version, config) for version in catalog])


def withdraw_model(config: PipelineConfig, output: Path, number: int, reason: str | None) -> None:
    """Withdraws a version that does not serve, and says so; raises as `withdraw` does."""
    layout = Layout.of(config, output)
    for line in withdraw(config, layout, EventLog(layout.event_log), number, reason):
        typer.echo(line)


def roll_back_model(config: PipelineConfig, output: Path, request: RollbackRequest) -> None:
    """Puts an earlier version in service, and says so; raises as `roll_back` does."""
    layout = Layout.of(config, output)
    for line in roll_back(config, layout, EventLog(layout.event_log), request):
        typer.echo(line)


def _fields(version: Version, config: PipelineConfig) -> dict[str, Any]:
    """A version for programs."""
    metrics = version.details.get("metrics", {})
    return {
        "version": version.number,
        "path": version.path,
        "pushed": pushed_at(version).isoformat(timespec="seconds"),
        "serves": version.serves,
        "withdrawn": version.withdrawn,
        "reason": version.reason,
        "copy_of": version.provenance.copy_of,
        "window": _window(version, config),
        "strategy": version.details.get("strategy"),
        # JSON has no NaN and no infinities.
        "metrics": {k: v if v is not None and isfinite(v) else None for k, v in metrics.items()},
        "model": version.model,
        "run": version.provenance.run,
    }


def _window(version: Version, config: PipelineConfig) -> list[str]:
    """The spans that the model was trained on; empty where the data does not come in spans."""
    if not has_spans(config.data):
        return []
    dated = is_dated(config.data)
    return [show_span(number, dated) for number in version.details.get("window", [])]


def _row(version: Version, config: PipelineConfig) -> tuple[str, ...]:
    """A version for people."""
    window = _window(version, config)
    spans = window[0] if len(window) == 1 else ""
    if len(window) > 1:
        spans = f"{window[0]} to {window[-1]} ({len(window)})"
    metrics = version.details.get("metrics", {})
    return (
        str(version.number),
        pushed_at(version).strftime("%Y-%m-%d %H:%M:%S"),
        _state(version),
        spans,
        version.details.get("strategy", ""),
        ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if value is not None),
    )


def _state(version: Version) -> str:
    """What there is to know before one goes back to a version."""
    states = ["serves"] if version.serves else []
    if version.withdrawn:
        states.append("withdrawn" + (f": {version.reason}" if version.reason else ""))
    if version.provenance.copy_of is not None:
        states.append(f"copy of {version.provenance.copy_of}")
    if not version.is_ours:
        states.append("not pushed by this pipeline")
    return ", ".join(states)


def _show_table(rows: list[tuple[str, ...]]) -> None:
    """Prints columns as wide as they need to be; one that is empty in all rows is left out."""
    table = [("version", "pushed", "state", "spans", "strategy", "metrics"), *rows]
    columns = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
