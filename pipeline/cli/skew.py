"""Implements `scopeline skew`: compares logged requests with the training data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from pipeline.cli.options import (
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    flag,
    open_pipeline,
    plain_table,
    quiet_console,
)
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import File, list_requests, newest_files_with_rows, show_files
from pipeline.exit_codes import EXIT_NOT_BLESSED, EXIT_PUSHED
from pipeline.layout import Layout
from pipeline.records.data_records import new_requests, record_skew
from pipeline.records.event_log import EventLog
from pipeline.records.notify import check_secrets, wait_for_deliveries
from trainer_module.errors import ConfigError, counted

if TYPE_CHECKING:
    from pipeline.runs.skew import Comparison


def skew(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
    record: Annotated[
        bool,
        flag("--record", "Compare new requests, and log the result."),
    ] = False,
) -> None:
    """Compare requests with the training data.

    Reads the newest requests that `serve --log-requests` has written. Needs the keys
    `skew.requests` and `skew.columns`.

    Example: scopeline skew --config my.yaml

    Exit codes: 0 no column is skewed, or with --record; 2 there is nothing to compare; 3 a column
    is skewed.
    """
    loaded, layout = open_pipeline(config, overrides, output)
    event_log = EventLog(layout.event_log)
    if record:
        _record(loaded, layout, event_log)
        return
    files = _newest(loaded)
    with quiet_console(verbose=False) as console:
        from pipeline.runs.skew import compare_requests

        comparison = compare_requests(loaded, layout, event_log, files)
        if as_json:
            console.print_json(json.dumps(_fields(comparison)))
        else:
            _show(console, loaded, comparison, files)
    raise typer.Exit(EXIT_NOT_BLESSED if comparison.skewed else EXIT_PUSHED)


def _record(config: PipelineConfig, layout: Layout, event_log: EventLog) -> None:
    """Compares new requests with the training data, records the result, and sends notifications."""
    check_secrets(config.notify, Occasion.SKEW)
    files = new_requests(config, event_log)
    if not files:
        typer.echo("skew: there are too few new requests")
        return
    with quiet_console(verbose=False):
        from pipeline.runs.skew import compare_requests

        comparison = compare_requests(config, layout, event_log, files)
    typer.echo(
        record_skew(
            config, event_log, files, comparison.version, comparison.rows, comparison.skewed
        )
    )
    wait_for_deliveries()


def _newest(config: PipelineConfig) -> list[File]:
    """Returns the newest request files with together `skew.min_rows` rows, or else all files."""
    if not config.skew.is_watched or config.skew.requests is None:
        raise ConfigError(
            "skew.columns: no column has a threshold; write `columns: {fare: {jensen_shannon:"
            " 0.1}}` and `requests: DIR`, the folder of `serve --log-requests`"
        )
    files = list_requests(config.skew.requests)
    if not files:
        raise ConfigError(
            f"skew.requests: {config.skew.requests} has no complete file yet; `serve"
            " --log-requests` completes a file each hour, and when the server ends"
        )
    return newest_files_with_rows(files, config.skew.min_rows)


def _show(
    console: Console, config: PipelineConfig, comparison: Comparison, files: list[File]
) -> None:
    console.print(
        f"[bold]{escape(config.name)}[/bold], version {comparison.version}:"
        f" {counted(comparison.rows, 'row')} of {escape(show_files(files))}"
    )
    if comparison.rows < config.skew.min_rows:
        console.print(
            f"fewer rows than skew.min_rows ({config.skew.min_rows:,}): the result is uncertain"
        )
    table = plain_table("column", "measure", "distance", "limit", "result")
    for column in comparison.columns:
        distance, limit = f"{column.distance:.3g}", f"{max(column.threshold, column.chance):.3g}"
        result = escape(column.in_words) if column.is_skewed else "as in training"
        table.add_row(escape(column.column), column.measure, distance, limit, result)
    console.print(table)


def _fields(comparison: Comparison) -> dict[str, object]:
    columns = [asdict(column) | {"is_skewed": column.is_skewed} for column in comparison.columns]
    return {"version": comparison.version, "rows": comparison.rows, "columns": columns}
