"""Implements `models`, `rollback`, `hold`, `release` and `approve`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import typer

from pipeline.cli.models import show_models
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    flag,
    open_pipeline,
)
from pipeline.records.event_log import EventLog
from pipeline.versions import waiting, withdrawal
from pipeline.versions.catalog import describe_servers
from pipeline.versions.hold import release_hold, set_hold
from pipeline.versions.rollback import RollbackRequest, roll_back
from pipeline.versions.waiting import ApprovalRequest, how_to_push, still_waiting
from trainer_module.errors import ConfigError

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Record this reason in the history.")
]


def models(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    withdraw: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Withdraw this version; it must not be in service."),
    ] = None,
    reason: ReasonOption = None,
) -> None:
    """List the versions with their state, kind, strategy and metrics.

    Versions are listed newest first, with the reason for their state. --withdraw VERSION marks a
    version that is not in service as bad: no rollback, warm start or comparison uses the version.

    Example: scopeline models --config my.yaml --withdraw 1767600000 --reason "bad"
    """
    loaded, layout = open_pipeline(config, overrides, output)
    if withdraw is None:
        show_models(loaded, output, as_json)
    else:
        event_log = EventLog(layout.event_log)
        _echo(withdrawal.withdraw(loaded, layout, event_log, withdraw, reason))


def rollback(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            help="Put this version in service.",
            show_default="the previous version",
        ),
    ] = None,
    reason: ReasonOption = None,
    force: Annotated[bool, flag("--force", "Allow a withdrawn version.")] = False,
    holds: Annotated[bool, flag("--hold", "Stop later pushes, too, as `hold` does.")] = False,
) -> None:
    """Put an earlier version in service.

    Pushes a copy of that version as the newest, and withdraws the versions after it. If the command
    is interrupted, run it again.

    Example: scopeline rollback --config my.yaml --reason "worse on mobile"
    """
    loaded, layout = open_pipeline(config, overrides, output)
    if holds and not reason:
        raise ConfigError("--hold: add --reason TEXT, which all commands show during the hold")
    request = RollbackRequest(to, reason, force, holds)
    _echo(roll_back(loaded, layout, EventLog(layout.event_log), request))
    typer.echo(describe_servers(layout))


def hold(
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Show this reason until the release.")
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="End the hold at this time, such as 2026-01-05T12:00."),
    ] = None,
    stops_runs: Annotated[bool, flag("--all", "Stop scheduled runs, too.")] = False,
) -> None:
    """Stop pushes until `release` or a date.

    Runs still train and evaluate. A blessed model waits, and its run exits with code 4. The version
    in service does not change.

    Example: scopeline hold --config my.yaml --reason "audit" --until 2026-01-05
    """
    _, layout = open_pipeline(config, overrides, output)
    if not layout.root.exists():
        raise ConfigError(
            f"{layout.name}: {layout.output} has no run of this pipeline, so there is nothing to "
            "hold; check --config and --output"
        )
    ends = None if until is None else _read_moment(until)
    text = set_hold(layout, EventLog(layout.event_log), reason, ends, stops_runs)
    typer.echo(f"{layout.name}: {text}")


def release(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    reason: ReasonOption = None,
) -> None:
    """End a hold, so that runs push again.

    Models that wait are pushed with `approve`.

    Example: scopeline release --config my.yaml
    """
    _, layout = open_pipeline(config, overrides, output)
    event_log = EventLog(layout.event_log)
    typer.echo(f"{layout.name}: {release_hold(layout, event_log, reason)}")
    for model in (model for model in still_waiting(event_log) if model.has_files(layout)):
        typer.echo(f"version {model.number} waits: {how_to_push(model.number, None)}")


def approve(
    version: Annotated[
        int, typer.Argument(metavar="VERSION", help="The version as listed by `models`.")
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Record this reason in the history.")],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    force: Annotated[bool, flag("--force", "Push even if a later model is in service.")] = False,
) -> None:
    """Push a blessed model that waits for approval.

    Example: scopeline approve 1767600000 --config my.yaml --reason "checked"
    """
    loaded, layout = open_pipeline(config, overrides, output)
    request = ApprovalRequest(version, reason, force)
    _echo(waiting.approve(loaded, layout, EventLog(layout.event_log), request))
    typer.echo(describe_servers(layout))


def _read_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigError(
            f"--until {text}: not a time; give 2026-01-05 for midnight, or 2026-01-05T12:00"
        ) from None


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
