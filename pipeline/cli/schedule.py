"""Implements `scopeline schedule` and `history`: retrains on a schedule, and lists past events."""

from __future__ import annotations

import json
import os
import pydoc
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.markup import escape
from rich.table import Table

from pipeline.cli.options import (
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    VerboseOption,
    find_modules_here,
    flag,
    open_pipeline,
    plain_table,
    wide_console,
)
from pipeline.clock import system_clock
from pipeline.exit_codes import EXIT_FAILED, EXIT_PUSHED
from pipeline.layout import Layout
from pipeline.lock import is_held
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from pipeline.records.notify import check_secrets
from pipeline.schedule.cron import explain, next_firings, show_time
from pipeline.schedule.health import find_scheduler_problem
from pipeline.schedule.history import read_history
from pipeline.schedule.scheduled_pipeline import ScheduledPipeline, load_pipelines
from pipeline.versions.hold import read_hold
from trainer_module.errors import ConfigError
from trainer_module.settings.durations import show_duration

NEXT_FIRINGS = 3
"""The number of upcoming firings that are shown for each pipeline."""
_TIME_WIDTH = len("2026-01-05 03:00:00")
_MIN_MESSAGE_WIDTH = 20
"""The minimum width of messages that wrap; on narrower terminals messages do not wrap."""


def schedule(
    configs: Annotated[
        list[Path],
        typer.Option(
            "--config", metavar="FILE", help="Read a pipeline from this YAML file; repeatable."
        ),
    ],
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    once: Annotated[bool, flag("--once", "Check once, run what is due, and exit.")] = False,
    lists: Annotated[
        bool, flag("--list", "Show the next firings and the last run, and exit.")
    ] = False,
    checks: Annotated[
        bool, flag("--check", "Report whether a scheduler is alive, and exit.")
    ] = False,
    now: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --once: decide as if it were this time."),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Retrain at cron times, on new data or on drift.

    Runs until SIGTERM or Ctrl-C, which stops its runs with exit code 0; the next scheduler resumes
    them. Each pipeline has at most one run at a time.

    Example: scopeline schedule --config a.yaml --config b.yaml

    Exit codes with --once: 0, or the worst code of a run: 1 a component failed, 2 the config or the
    data is unusable, 75 try again later. With --check: 0 a scheduler is alive, 1 none is.
    """
    # The import is only here, so that other commands do not wait for APScheduler.
    from pipeline.schedule.scheduler import check_once, default_runner, serve

    if now is not None and not once:
        raise ConfigError(f"--now {now}: add --once, which --now needs")
    if once + lists + checks > 1:
        raise ConfigError("--once, --list and --check: give one of them")
    find_modules_here()
    pipelines = load_pipelines(configs, overrides, output, verbose, is_lenient=once)
    if lists:
        wide_console().print(_schedule_table(pipelines, system_clock()))
        return
    layout = Layout(output.resolve(), pipelines[0].name)
    lock_file = layout.scheduler_lock
    if checks:
        problem = find_scheduler_problem(lock_file, layout.heartbeat, [p.name for p in pipelines])
        typer.echo(problem or "well")
        raise typer.Exit(EXIT_FAILED if problem else EXIT_PUSHED)
    runner = default_runner()
    if once:
        clock = system_clock if now is None else _fixed_clock(now)
        raise typer.Exit(check_once(pipelines, lock_file, runner, clock))
    for pipeline in pipelines:
        check_secrets(pipeline.load_config().notify)
    serve(pipelines, lock_file, runner)


def history(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Print all details as JSON.")] = False,
    last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show only the newest N events.")
    ] = None,
    kind: Annotated[
        list[EventKind],
        typer.Option(metavar="KIND", help="Show only this kind, such as pushed; repeatable."),
    ] = [],  # noqa: B006
) -> None:
    """Show past decisions and results of runs.

    The newest event is last. A terminal shows the events in a pager.

    Example: scopeline history --config my.yaml --last 20
    """
    _, layout = open_pipeline(config, overrides, output)
    events = EventLog(layout.event_log).events(*kind, newest=last)
    if as_json:
        lines = ",\n".join(json.dumps(_as_dict(event)) for event in events)
        typer.echo(f"[\n{lines}\n]" if events else "[]")
    elif events:
        _show_paged(_history_lines(events))
    elif kind and EventLog(layout.event_log).first() is not None:
        typer.echo(f"{layout.name}: no event of {'these kinds' if len(kind) > 1 else 'this kind'}")
    else:
        typer.echo(f"{layout.name}: no run and no decision has been recorded yet")


def _fixed_clock(text: str) -> Callable[[], datetime]:
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigError(
            f"--now {text}: not a time; give one like 2026-01-05T03:00:00+01:00"
        ) from None
    return lambda: moment


def _as_dict(event: LoggedEvent) -> dict[str, object]:
    return asdict(event) | {"at": event.at.isoformat(), "kind": event.kind.value}


def _history_lines(events: list[LoggedEvent]) -> Iterator[str]:
    """Yields a line per event; on a terminal, long messages wrap into indented lines."""
    titles = ("time", "event", "run", "reason or result")
    kind_width = max(len(titles[1]), *(len(event.kind) for event in events))
    run_width = max(len(titles[2]), *(len(event.run or "") for event in events))
    margin = _TIME_WIDTH + kind_width + run_width + 6
    room = shutil.get_terminal_size().columns - margin if sys.stdout.isatty() else 0
    wraps = room >= _MIN_MESSAGE_WIDTH
    time, kind, run, result = titles
    yield f"{time:<{_TIME_WIDTH}}  {kind:<{kind_width}}  {run:<{run_width}}  {result}\n"
    for event in events:
        at = event.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        lines = textwrap.wrap(event.message, room) if wraps else event.message.splitlines()
        message = f"\n{' ' * margin}".join(lines)
        row = f"{at}  {event.kind:<{kind_width}}  {event.run or '':<{run_width}}  {message}"
        yield row.rstrip() + "\n"


def _show_paged(lines: Iterator[str]) -> None:
    """Prints lines; on a terminal, in `$PAGER` as git does, scrolled to the last line."""
    text = "".join(lines)
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    # Git's options F (quit if all fits), R (keep colours) and X (keep the screen); +G scrolls.
    os.environ.setdefault("LESS", "FRX +G")
    pydoc.pager(text)


def _schedule_table(pipelines: list[ScheduledPipeline], now: datetime) -> Table:
    table = plain_table("pipeline", "when", "next firings", "last run", "result")
    for pipeline in pipelines:
        settings = pipeline.load_config().schedule_or_default
        layout = Layout(pipeline.output, pipeline.name)
        event_log = EventLog(layout.event_log)
        firings = [
            show_time(moment, settings) for moment in next_firings(settings, now, NEXT_FIRINGS)
        ]
        triggers = [explain(settings)] if settings.cron else []
        triggers += [f"new data, checked every {show_duration(settings.poll)}"] * (
            settings.on_new_data
        )
        hold = read_hold(layout, now)
        triggers += [] if hold is None else [str(hold)]
        history = read_history(event_log)
        started = history.started  # A user may have started this run by hand.
        last_run, result = "none yet", ""
        if started is not None:
            last_run = f"{show_time(started.at, settings)}: {started.message}"
            result = _describe_result(layout, event_log, started)
        if history.problem is not None:
            result = f"{result}\nstuck: {history.problem.message}".strip()
        table.add_row(
            pipeline.name,
            escape("\n".join(triggers)),
            "\n".join(firings),
            escape(last_run),
            escape(result),
        )
    return table


def _describe_result(layout: Layout, event_log: EventLog, started: LoggedEvent) -> str:
    ends = event_log.events(EventKind.FINISHED, EventKind.FAILED, run=started.run)
    if not ends:
        return _running_or_killed(layout, started)
    status = ends[-1].details.get("status", ends[-1].kind.value)
    return f"{str(status).replace('_', ' ')}: {ends[-1].message}"


def _running_or_killed(layout: Layout, started: LoggedEvent) -> str:
    """Returns the state of a run without a recorded end; a live run holds its lock."""
    process = started.details.get("process")
    is_alive = process is not None and psutil.pid_exists(process)
    if not is_held(layout.lock):
        return "killed: the run has lost its lock; the next check resumes the run"
    if process is None or is_alive:
        return "running" + (f": process {process}" if is_alive else "")
    return f"killed: process {process} is gone; another run has begun"
