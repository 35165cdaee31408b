"""Implements `scopeline report` and `compare`: the report of a run, and runs side by side."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from pipeline.cli.early_signals import SERVE_REPORTS
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    flag,
    plain_table,
    wide_console,
)
from pipeline.config.loading import load_config, read_name
from pipeline.layout import Layout
from pipeline.records.run_folders import LAST, StoredRun, find_run
from pipeline.report.comparison import Comparison, Difference, compare_runs
from pipeline.report.text import NONE, duration, interval, number, signed, size, visible
from pipeline.runs.console import show_path

_RUN = "A run: `last`, `previous`, the beginning of an id, or a folder."
RunArgument = Annotated[str, typer.Argument(metavar="[RUN]", help=_RUN)]


def find_run_of(config: Path, overrides: list[str], output: Path, name: str) -> StoredRun:
    """Returns a run of the pipeline of a config.

    Only the name is read from the config, as a run may be looked at while its config is edited.

    Raises:
      ConfigError: the config has no valid name, or there is no such run.
    """
    pipeline = read_name(config, overrides) or load_config(config, overrides).name
    return find_run(Layout(output.resolve(), pipeline), name)


def report(
    run: RunArgument = LAST,
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    again: Annotated[bool, flag("--again", "Write the report again.")] = False,
    no_open: Annotated[bool, flag("--no-open", "Print the path only.")] = False,
    serve: Annotated[
        bool, flag(SERVE_REPORTS, "Show all runs below the output folder in a browser.")
    ] = False,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Serve on this port.")
    ] = 8600,
) -> None:
    """Open the report of a run, or serve all reports.

    Prints the path of the report, and opens it if there is a browser. A missing report is written
    from the summary of the run. --serve lists the runs of all pipelines, with filters and a
    comparison, to this machine only.

    Example: scopeline report last --config my.yaml
    """
    if serve:
        # The import is here, as the other commands need no server.
        from pipeline.report.server import serve_reports

        serve_reports(output.resolve(), port)
        return
    from pipeline.report.page import rewrite_report

    found = find_run_of(config, overrides, output, run)
    path = found.files.report
    if again or not path.is_file():
        rewrite_report(found)
    typer.echo(show_path(path))
    if not no_open:
        _open(path)


def _open(path: Path) -> None:
    """Opens a file in a graphical browser, if the output is a terminal with a display."""
    has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if not sys.stdout.isatty() or not has_display:
        return
    import webbrowser

    webbrowser.open(path.resolve().as_uri())


def compare(
    first: Annotated[str, typer.Argument(metavar="RUN", help=_RUN)],
    second: RunArgument = LAST,
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
) -> None:
    """Compare two runs: config, data, metrics, time and costs.

    For each metric, shows the interval of the difference, and whether chance explains it.

    Example: scopeline compare previous last --config my.yaml
    """
    runs = [find_run_of(config, overrides, output, name) for name in (first, second)]
    comparison = compare_runs(*(found.read() for found in runs))
    if as_json:
        typer.echo(json.dumps(_finite(_fields(comparison)), indent=2))
    else:
        _show(comparison)


def _fields(comparison: Comparison) -> dict[str, Any]:
    """Returns a comparison for JSON: the ids of the runs and what differs."""
    parts = asdict(comparison)
    for name in ("first", "second"):
        summary = getattr(comparison, name)
        parts[name] = {"pipeline": summary.pipeline, "run": summary.run_id}
    for fields, metric in zip(parts["metrics"], comparison.metrics, strict=True):
        for name in ("first", "second"):
            measured = getattr(metric, name)
            fields[name] = measured and {"value": measured.value, "interval": measured.interval}
        fields["verdict"] = metric.verdict
    return parts


def _finite(value: Any) -> Any:
    """Returns a value in which NaN and infinities, which JSON lacks, are None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    is_invalid = isinstance(value, float) and not -float("inf") < value < float("inf")
    return None if is_invalid else value


def _show(comparison: Comparison) -> None:
    first, second = comparison.first, comparison.second
    heads = (f"{first.pipeline} {first.run_id}", f"{second.pipeline} {second.run_id}")
    _show_table("", ("", *heads), _rows(comparison.results))
    if comparison.metrics:
        rows = [
            (
                m.name,
                *(number(run.value) if run else NONE for run in (m.first, m.second)),
                signed(m.difference),
                interval(m.interval),
                m.verdict,
            )
            for m in comparison.metrics
        ]
        _show_table("Metrics", ("", "first", "second", "difference", "interval", ""), rows)
    _show_table("Data", ("", "first", "second"), _rows(comparison.data))
    changes = [(change.name, change.change) for change in comparison.columns[:MAX_ROWS]]
    _show_table("Columns of train that differ", ("", "change"), changes)
    _show_table("Config", ("", "first", "second"), _rows(comparison.config))
    _show_table("Code and packages", ("", "first", "second"), _rows(comparison.code))
    steps = [
        (
            step.name,
            *(f"{s} {duration(t)}" for s, t in zip(step.states, step.seconds, strict=True)),
            " / ".join(map(duration, step.cpu_seconds)),
            " / ".join(map(size, step.peak_bytes)),
        )
        for step in comparison.steps
    ]
    steps.append(("whole run", duration(first.seconds), duration(second.seconds), "", ""))
    _show_table("Time and costs", ("", "first", "second", "CPU", "peak memory"), steps)
    for note in comparison.notes:
        wide_console().print(f"note: {escape(note)}")


MAX_ROWS = 30
"""The maximum number of rows of a table on the screen; `--json` has all."""


def _rows(differences: Iterable[Difference]) -> list[tuple[str, ...]]:
    return [(d.name, d.first, d.second) for d in differences]


def _show_table(title: str, heads: tuple[str, ...], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table with a title, or nothing without rows."""
    if not rows:
        return
    console = wide_console()
    if title:
        console.print(f"\n[bold]{title}[/bold]")
    table = plain_table(*map(escape, heads))
    for row in rows[:MAX_ROWS]:
        table.add_row(*(escape(visible(cell)) for cell in row))
    console.print(table)
    if len(rows) > MAX_ROWS:
        console.print(f"and {len(rows) - MAX_ROWS:,} more, which --json prints")
