"""Implements `scopeline cluster`: starts, shows and stops persistent parameter servers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from components.processes.launcher import Place
from components.processes.standing_cluster import (
    FILE,
    FOLDER,
    command,
    read_cluster,
    start_cluster,
    stop_cluster,
)
from pipeline.cli.help import App
from pipeline.cli.options import OUTPUT, find_modules_here
from pipeline.exit_codes import EXIT_FAILED
from pipeline.runs.console import show_path
from trainer_module.typed_words import typed_program

app = App(
    help="Start, show and stop servers on which notebooks and runs train.",
    epilog="Guide: docs/notebook.md",
    no_args_is_help=True,
)

OutputOption = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Keep the files in DIR/cluster.")
]


@app.command(epilog="Guide: docs/notebook.md")
def start(
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, help="Start N servers that compute gradients.")
    ] = 2,
    parameter_servers: Annotated[
        int, typer.Option(metavar="N", min=1, help="Start N servers that hold the variables.")
    ] = 1,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="Import the module of this builder, which registers operations.",
        ),
    ] = None,
    output: OutputOption = OUTPUT,
) -> None:
    """Start servers that run until `cluster stop`.

    Notebooks and runs train on them with ParameterServerStrategy. The last lines of the output show
    how to connect. The logs are DIR/cluster/<server>.log.

    Example: scopeline cluster start --workers 2 --parameter-servers 1

    Exit codes: 0 all servers run, 1 a server did not start, 2 a cluster is running.
    """
    find_modules_here()
    tasks = [Place("worker", index) for index in range(workers)]
    tasks += [Place("ps", index) for index in range(parameter_servers)]
    folder = output / FOLDER
    start_cluster(folder, tasks, model, typer.echo)
    typer.echo(_how_to_connect(folder))


@app.command(epilog="Guide: docs/notebook.md")
def status(output: OutputOption = OUTPUT) -> None:
    """Show the servers, and whether each is up.

    A server is up if its process is alive and accepts connections.

    Exit codes: 0 all are up, 1 some are dead, 2 there is no cluster.
    """
    cluster = read_cluster(output / FOLDER)
    up = [cluster.is_up(server) for server in cluster.servers]
    for server, is_up in zip(cluster.servers, up, strict=True):
        state = "up" if is_up else "dead"
        typer.echo(f"{server.name:<19} {cluster.address_of(server):<16} {server.pid:>8}  {state}")
    if not all(up):
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Guide: docs/notebook.md")
def stop(output: OutputOption = OUTPUT) -> None:
    """Stop the servers, and remove their file.

    A server that ignores SIGTERM is killed.

    Exit codes: 0 stopped, 2 there is no cluster.
    """
    stop_cluster(output / FOLDER, typer.echo)
    typer.echo(f"removed {show_path(output / 'cluster' / FILE)}")


def _how_to_connect(folder: Path) -> str:
    file = folder / FILE
    return f"""\
The servers run until `{command("stop", folder)}`.

In a notebook, with TF_USE_LEGACY_KERAS=1 in the environment before TensorFlow is imported:
  from trainer_module.strategies import persistent
  strategy = persistent.connect({str(file.resolve())!r})

As a run:
  TF_CONFIG="$(cat {shlex.quote(show_path(file))})" \\
    {typed_program()} run --set train.strategy=parameter_server"""
