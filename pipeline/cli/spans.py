"""Implements `scopeline spans`: lists the state of each span, and accepts drifted spans."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from pipeline.cli.help import App
from pipeline.cli.options import (
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    flag,
    group_with_default,
    open_pipeline,
    plain_table,
    wide_console,
)
from pipeline.data.files import locate_data
from pipeline.records.event_log import EventLog
from pipeline.schedule.span_states import ListedSpan, accept_span, list_states

LIST = "list"
"""The default command of the group."""

app = App(
    cls=group_with_default(LIST),
    help="List the state of each span, or accept a span that drifted.",
    epilog="`spans` alone is `spans list`. Guide: docs/scheduling.md",
)


@app.command(LIST, epilog="Guide: docs/scheduling.md")
def list_all(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
) -> None:
    """List the state of each span, oldest first.

    A span was read, trained on or left out; the last column is the reason.

    Example: scopeline spans list --config my.yaml
    """
    loaded, layout = open_pipeline(config, overrides, output)
    event_log, now = EventLog(layout.event_log), datetime.now().astimezone()
    listed = list_states(loaded, layout, event_log, now)
    if as_json:
        typer.echo(json.dumps([_fields(entry) for entry in listed], indent=2))
        return
    table = plain_table("span", "state", "rows", "written", "read", "why")
    for entry in listed:
        rows = "" if entry.rows is None else f"{entry.rows:,}"
        written, read = _time(_written(entry)), _time(entry.read)
        table.add_row(str(entry.span), entry.state.value, rows, written, read, escape(entry.reason))
    if listed:
        wide_console().print(table)
    else:
        # The message shows the folder, as cron and systemd may set another working directory.
        location = locate_data(loaded.data, layout)
        patterns = ", ".join(f"{location.base}/{glob}" for glob in location.patterns.values())
        typer.echo(f"{layout.name}: there is no span yet; no file matches {patterns}")


@app.command(epilog="Guide: docs/scheduling.md")
def accept(
    span: Annotated[
        str, typer.Argument(metavar="SPAN", help="The date, hour or number of the span.")
    ],
    config: ConfigOption,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Record this reason in the history.")
    ],
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
) -> None:
    """Accept a span that drifted.

    The next run trains on the span, and compares later spans with it. If its files change, the next
    run checks it again.

    Example: scopeline spans accept 2026-01-05 --config my.yaml --reason "new tariff"
    """
    loaded, layout = open_pipeline(config, overrides, output)
    typer.echo(accept_span(loaded, layout, EventLog(layout.event_log), span, reason))


def _fields(entry: ListedSpan) -> dict[str, Any]:
    """Returns the fields of a span for JSON."""
    return {
        "span": entry.span.name,
        "version": entry.span.version,
        "state": entry.state.value,
        "why": entry.reason,
        "rows": entry.rows,
        "written": _written(entry).isoformat(timespec="seconds"),
        "read": None if entry.read is None else entry.read.isoformat(timespec="seconds"),
        "files": [file.path for file in entry.span.files],
    }


def _written(entry: ListedSpan) -> datetime:
    return datetime.fromtimestamp(entry.span.modified).astimezone()


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
