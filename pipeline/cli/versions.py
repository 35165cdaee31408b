"""Implements `models --withdraw`, `rollback`, `hold`, `release` and `approve`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import typer

from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.versions.catalog import describe_servers
from pipeline.versions.hold import release_hold, set_hold
from pipeline.versions.rollback import RollbackRequest, roll_back
from pipeline.versions.waiting import (
    ApprovalRequest,
    approve,
    how_to_push,
    still_waiting,
)
from pipeline.versions.withdrawal import withdraw
from trainer_module.errors import ConfigError


def withdraw_model(config: PipelineConfig, output: Path, number: int, reason: str | None) -> None:
    """Withdraws a version that is not in service, and prints the result; raises as `withdraw`."""
    layout = Layout.of(config.name, config.push, output)
    for line in withdraw(config, layout, EventLog(layout.event_log), number, reason):
        typer.echo(line)


def roll_back_model(config: PipelineConfig, output: Path, request: RollbackRequest) -> None:
    """Puts an earlier version in service, and prints the result; raises as `roll_back` does."""
    if request.holds and not request.reason:
        raise ConfigError("--hold: add --reason TEXT, which all commands show during the hold")
    layout = Layout.of(config.name, config.push, output)
    for line in roll_back(config, layout, EventLog(layout.event_log), request):
        typer.echo(line)
    typer.echo(describe_servers(layout))


def hold_pushes(
    config: PipelineConfig, output: Path, reason: str, until: str | None, stops_runs: bool
) -> None:
    """Sets a hold, and prints the result; raises as `set_hold` does."""
    layout = Layout.of(config.name, config.push, output)
    if not layout.root.exists():
        raise ConfigError(
            f"{layout.name}: {layout.output} has no run of this pipeline, so there is nothing to "
            "hold; check --config and --output"
        )
    ends = None if until is None else _read_moment(until)
    hold = set_hold(layout, EventLog(layout.event_log), reason, ends, stops_runs)
    typer.echo(f"{layout.name}: {hold}")


def release_pushes(config: PipelineConfig, output: Path, reason: str | None) -> None:
    """Lifts a hold, and lists the models that wait for approval."""
    layout = Layout.of(config.name, config.push, output)
    event_log = EventLog(layout.event_log)
    typer.echo(f"{layout.name}: {release_hold(layout, event_log, reason)}")
    for model in (model for model in still_waiting(event_log) if model.has_files(layout)):
        typer.echo(f"version {model.number} waits: {how_to_push(model.number, None)}")


def approve_model(config: PipelineConfig, output: Path, request: ApprovalRequest) -> None:
    """Pushes a model that waits, and prints the result; raises as `approve` does."""
    layout = Layout.of(config.name, config.push, output)
    for line in approve(config, layout, EventLog(layout.event_log), request):
        typer.echo(line)
    typer.echo(describe_servers(layout))


def _read_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigError(
            f"--until {text}: not a time; give 2026-01-05 for midnight, or 2026-01-05T12:00"
        ) from None
