"""The implementation of `models`, `rollback`, `hold`, `release` and `approve`."""

from __future__ import annotations

import json
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
from pipeline.records.event_log import EventLog
from pipeline.runs.console import shown
from pipeline.versions.catalog import Version, find_serving, pushed_at, read_catalog, who_follows
from pipeline.versions.hold import Hold, read_hold, release_hold, set_hold
from pipeline.versions.rollback import RollbackRequest, roll_back
from pipeline.versions.waiting import (
    ApprovalRequest,
    Waiting,
    approve,
    still_waiting,
    why_not_pushed,
)
from pipeline.versions.withdrawal import withdraw
from trainer_module.errors import ConfigError, DataError

_TIME = "%Y-%m-%d %H:%M:%S"


def show_models(config: PipelineConfig, output: Path, as_json: bool) -> None:
    """Lists the pushed versions, newest first; reads all their files to find damaged versions.

    Args:
      config: a checked config.
      output: the output folder.
      as_json: whether to print JSON.

    Raises:
      ConfigError: the event log cannot be used, or a hold cannot be read.
    """
    layout = Layout.of(config.name, config.push, output)
    event_log = EventLog(layout.event_log)
    catalog = read_catalog(layout, event_log)
    waiting = [model for model in still_waiting(event_log) if model.is_there(layout)]
    hold, serving = read_hold(layout), find_serving(catalog)
    listed = [_fields(version, config, version is serving) for version in catalog]
    listed += [_waiting_fields(model, config, layout, hold) for model in waiting]
    listed.sort(key=lambda fields: fields["version"], reverse=True)
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
        return
    others = {version.number for version in catalog if not version.is_ours}
    if listed:
        _show_table([_row(fields, fields["version"] not in others) for fields in listed])
    if not catalog:
        typer.echo(f"{shown(layout.serving)}: no version has been pushed yet")
    if hold is not None:
        typer.echo(str(hold))


def withdraw_model(config: PipelineConfig, output: Path, number: int, reason: str | None) -> None:
    """Withdraws a version that does not serve, and prints the result; raises as `withdraw` does."""
    layout = Layout.of(config.name, config.push, output)
    for line in withdraw(config, layout, EventLog(layout.event_log), number, reason):
        typer.echo(line)


def roll_back_model(config: PipelineConfig, output: Path, request: RollbackRequest) -> None:
    """Puts an earlier version in service, and prints the result; raises as `roll_back` does."""
    if request.holds and not request.reason:
        raise ConfigError("--hold: say why with --reason; it is shown as long as nothing is pushed")
    layout = Layout.of(config.name, config.push, output)
    for line in roll_back(config, layout, EventLog(layout.event_log), request):
        typer.echo(line)
    typer.echo(who_follows(layout))


def hold_pushes(
    config: PipelineConfig, output: Path, reason: str, until: str | None, stops_runs: bool
) -> None:
    """Sets a hold, and prints the result; raises as `set_hold` does."""
    layout = Layout.of(config.name, config.push, output)
    if not layout.root.exists():
        raise ConfigError(
            f"{layout.name}: no run of it has been in {layout.output}: nothing to hold; "
            "is it another --config, or another --output?"
        )
    ends = None if until is None else _read_moment(until)
    said = set_hold(layout, EventLog(layout.event_log), reason, ends, stops_runs)
    typer.echo(f"{layout.name}: {said}")


def release_pushes(config: PipelineConfig, output: Path, reason: str | None) -> None:
    """Lifts a hold, and lists the models that wait for approval."""
    layout = Layout.of(config.name, config.push, output)
    event_log = EventLog(layout.event_log)
    typer.echo(f"{layout.name}: {release_hold(layout, event_log, reason)}")
    for model in (model for model in still_waiting(event_log) if model.is_there(layout)):
        typer.echo(f"version {model.number} waits: {why_not_pushed(model.number, None)}")


def approve_model(config: PipelineConfig, output: Path, request: ApprovalRequest) -> None:
    """Pushes a model that waits, and prints the result; raises as `approve` does."""
    layout = Layout.of(config.name, config.push, output)
    for line in approve(config, layout, EventLog(layout.event_log), request):
        typer.echo(line)
    typer.echo(who_follows(layout))


def _read_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigError(
            f"--until {text}: this is no time; one is 2026-01-05, as it begins, or 2026-01-05T12:00"
        ) from None


def _fields(version: Version, config: PipelineConfig, serves: bool) -> dict[str, Any]:
    """Returns the fields of a version for JSON."""
    metrics = version.details.get("metrics", {})
    return {
        "version": version.number,
        "path": version.path,
        "pushed": pushed_at(version).isoformat(timespec="seconds"),
        "serves": serves,
        "waits": False,
        "withdrawn": version.withdrawn,
        "damaged": version.damage or version.variant_damage or None,
        "reason": version.reason,
        "copy_of": version.provenance.copy_of,
        "window": _window(version.details, config),
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
    """Returns the fields of a model that waits, for JSON; like `_fields`, but without a folder."""
    return {
        "version": model.number,
        "path": None,
        "pushed": None,
        "serves": False,
        "waits": True,
        "withdrawn": False,
        "damaged": model.damage(layout) or None,
        "reason": why_not_pushed(model.number, hold),
        "copy_of": None,
        "window": _window(model.details, config),
        "strategy": model.details.get("strategy"),
        "metrics": model.details.get("metrics", {}),
        "variants": _waiting_variants(model, layout),
        "model": model.model,
        "run": model.run,
    }


def _window(details: dict[str, Any], config: PipelineConfig) -> list[str]:
    """Returns the spans that the model was trained on; empty for data without spans."""
    if not has_spans(config.data):
        return []
    return [span_kind(config.data).show(number) for number in details.get("window", [])]


def _row(fields: dict[str, Any], is_ours: bool) -> tuple[str, ...]:
    """Returns the table row of a version or a waiting model, from the fields of its JSON."""
    pushed, window = fields["pushed"], fields["window"]
    spans = window[0] if len(window) == 1 else ""
    if len(window) > 1:
        spans = f"{window[0]} to {window[-1]} ({len(window)})"
    metrics = fields["metrics"].items()
    return (
        str(fields["version"]),
        datetime.fromisoformat(pushed).strftime(_TIME) if pushed else "",
        _state(fields, is_ours),
        spans,
        fields["strategy"] or "",
        ", ".join(f"{name} {value:.4g}" for name, value in metrics if value is not None),
        ", ".join(fields["variants"]),
    )


def _variants(version: Version) -> list[str]:
    """Returns the names of a version's variants; empty for a remote folder, which is not read."""
    if is_remote(version.path):
        return []
    try:
        return list(read_manifest(Path(version.path)))
    except DataError:
        return ["damaged"]


def _waiting_variants(model: Waiting, layout: Layout) -> list[str]:
    folder = model.variants_in(layout)
    return [] if folder is None or is_remote(str(folder)) else accepted_variants(folder)


def _state(fields: dict[str, Any], is_ours: bool) -> str:
    """Returns a version's state, for the choice of a rollback or an approval."""
    states = ["serves"] if fields["serves"] else []
    if damage := fields["damaged"]:
        states.append(f"damaged: {damage}")
    elif fields["waits"]:
        states.append(f"waits: {fields['reason']}")
    if fields["withdrawn"]:
        states.append("withdrawn" + (f": {fields['reason']}" if fields["reason"] else ""))
    if fields["copy_of"] is not None:
        states.append(f"copy of {fields['copy_of']}")
    if not is_ours:
        states.append("not pushed by this pipeline")
    return ", ".join(states)


def _show_table(rows: list[tuple[str, ...]]) -> None:
    """Prints columns as wide as their cells need; leaves out columns that are empty in all rows."""
    table = [("version", "pushed", "state", "spans", "strategy", "metrics", "variants"), *rows]
    columns = [column for column in zip(*table, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
