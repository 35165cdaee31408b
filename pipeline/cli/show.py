"""Implements `scopeline show`: a look at the results of a component from the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    VerboseOption,
    flag,
    open_pipeline,
    plain_table,
    quiet_console,
    wide_console,
)
from pipeline.cli.report import find_run_of
from pipeline.component_ids import ComponentId
from pipeline.records.metadata_store import check_store
from pipeline.records.run_folders import LAST
from pipeline.report.step_views import View, check_ran, find_component, view_summary
from pipeline.report.text import visible

_READ_FROM_ARTIFACTS = (
    ComponentId.EXAMPLE_GEN,
    ComponentId.STATISTICS_GEN,
    ComponentId.SCHEMA_GEN,
    ComponentId.TRANSFORM,
)


def show(
    component: Annotated[
        str, typer.Argument(metavar="COMPONENT", help="The component, such as Trainer.")
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    run: Annotated[
        str,
        typer.Option(metavar="RUN", help="The run: `last`, `previous`, an id, or a folder."),
    ] = LAST,
    rows: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Show this many rows.")
    ] = 10,
    predictions: Annotated[
        bool, flag("--predictions", "Of Evaluator: show predictions of the first rows of eval.")
    ] = False,
) -> None:
    """Show the results of a component in a run.

    Examples, statistics, schema and transformed features are read from artifacts, all other results
    from the summary of the run.

    Example: scopeline show Evaluator --config my.yaml --predictions
    """
    chosen = find_component(component)
    found = find_run_of(config, overrides, output, run)
    summary = found.read()
    check_ran(summary, chosen)
    predicts = predictions and chosen is ComponentId.EVALUATOR
    views = view_summary(summary, chosen, rows)
    if chosen not in _READ_FROM_ARTIFACTS and not predicts:
        _print(wide_console(), views)
        return
    # The folder of a run is OUTPUT/PIPELINE/runs/ID.
    loaded, layout = open_pipeline(config, overrides, found.files.root.parents[2])
    check_store(loaded.metadata, layout)
    with quiet_console(verbose) as console:
        # The import is here, because this module imports TFX.
        from pipeline.runs.artifact_views import ArtifactViews

        artifacts = ArtifactViews(loaded, layout, found.id)
        views += [artifacts.predictions(rows)] if predicts else artifacts.view(chosen, rows)
        _print(Console(file=console.file, highlight=False, width=wide_console().width), views)


def _print(console: Console, views: Sequence[View]) -> None:
    for view in views:
        console.print(f"[bold]{escape(visible(view.title))}[/bold]")
        table = plain_table(*(escape(visible(head)) for head in view.heads))
        table.show_header = any(view.heads)
        for row in view.rows:
            table.add_row(*(escape(visible(cell)) for cell in row))
        console.print(table)
        if view.omitted:
            console.print(f"and {view.omitted:,} more; --rows N shows more")
        console.print()
