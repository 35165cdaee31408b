"""Implements `scopeline schema`: writes the JSON Schema of configs, and accepts changed data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.help import App
from pipeline.cli.options import (
    OUTPUT,
    ConfigOption,
    OutputOption,
    SetOption,
    VerboseOption,
    flag,
    group_with_default,
    open_pipeline,
    quiet_console,
)
from pipeline.config.json_schema import config_schema
from pipeline.config.schema_file import SCHEMA_FILE, check_replaceable, editor_line
from pipeline.first_config.folder import write_files
from pipeline.lock import run_lock
from pipeline.records.metadata_store import check_store
from pipeline.runs.console import show_path
from trainer_module.errors import ConfigError

WRITE = "write"
"""The default command of the group."""

app = App(
    cls=group_with_default(WRITE),
    help="Accept changed data, or write the JSON Schema of configs.",
    epilog="`schema FILE` is `schema write FILE`. Guide: docs/your-data.md",
)


@app.command(WRITE, epilog="Guide: docs/quickstart.md")
def write(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="[FILE]",
            help="Write to this file; - writes to the screen.",
            show_default=SCHEMA_FILE,
        ),
    ] = Path(SCHEMA_FILE),
    force: Annotated[bool, flag("--force", "Replace a file with other content.")] = False,
) -> None:
    """Write the JSON Schema by which editors complete and check configs.

    Example: scopeline schema write config.schema.json
    """
    if file.suffix in (".yaml", ".yml"):
        raise ConfigError(f"{file}: expected the name of a file of JSON, such as {SCHEMA_FILE}")
    if file == Path("-"):
        typer.echo(config_schema(), nl=False)
        return
    check_replaceable(file, force)
    write_files(file.parent, {file.name: config_schema()}, {})
    typer.echo(f"written: {file}")
    typer.echo(f"the first line of configs in this folder: {editor_line(file)}")


@app.command(epilog="Guide: docs/your-data.md")
def accept(
    config: ConfigOption,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    columns: Annotated[
        list[str],
        typer.Option(
            "--column",
            metavar="COLUMN",
            help="Accept this column only; repeatable.",
        ),
    ] = [],  # noqa: B006
    to_write: Annotated[
        bool, flag("--write", "Also change the file that the key `schema` names.")
    ] = False,
) -> None:
    """Accept the anomalies of the last run's data.

    Shows the changes of the data schema, which the next run uses.

    Example: scopeline schema accept --config my.yaml --column fare
    """
    loaded, layout = open_pipeline(config, overrides, output)
    check_store(loaded.metadata, layout)
    with quiet_console(verbose) as console:
        from pipeline.runs.acceptance import accept_last_data

        change = accept_last_data(loaded, layout, columns)
        path = show_path(change.path)
        if not change.columns:
            console.print(f"{path}: the last data fits this schema; there is nothing to change")
            return
        console.print(change.diff, markup=False)
        if loaded.schema_file is not None and not to_write:
            console.print(
                f"{path} was not changed, as the key `schema` names it: edit the file, or add "
                "--write"
            )
            return
        with run_lock(layout):
            change.write()
        console.print(
            f"{path}: accepted {', '.join(change.columns)}; the next run uses this schema"
        )
