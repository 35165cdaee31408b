"""`local_runner.py cluster`: starts, shows and stops a persistent cluster for parameter servers."""

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
from pipeline.cli.options import OUTPUT, find_modules_here
from pipeline.exit_codes import EXIT_FAILED
from pipeline.runs.console import shown

app = typer.Typer(
    help="Start, show and stop servers that notebooks and runs train on.", no_args_is_help=True
)

OutputOption = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="The cluster's files are in DIR/cluster.")
]


@app.command()
def start(
    workers: Annotated[int, typer.Option(min=1, help="Servers that compute gradients.")] = 2,
    parameter_servers: Annotated[
        int, typer.Option(min=1, help="Servers that hold the variables.")
    ] = 1,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE.FUNCTION",
            help="A builder of yours, for the servers to import: needed if its module registers "
            "operations of its own.",
        ),
    ] = None,
    output: OutputOption = OUTPUT,
) -> None:
    """Start servers on this machine that run until `cluster stop`.

    Notebooks and runs train on them with ParameterServerStrategy; the last lines of the output show
    how to connect. The servers log to DIR/cluster/<server>.log; their addresses are in
    DIR/cluster/cluster.json.

    Example: local_runner.py cluster start --workers 2 --parameter-servers 1

    Exit codes: 0 all servers run, 1 a server did not start, 2 a cluster is running already.
    """
    find_modules_here()
    tasks = [Place("worker", index) for index in range(workers)]
    tasks += [Place("ps", index) for index in range(parameter_servers)]
    folder = output / FOLDER
    start_cluster(folder, tasks, model, typer.echo)
    typer.echo(_how_to_connect(folder))


@app.command()
def status(output: OutputOption = OUTPUT) -> None:
    """Show the servers: name, address, process id, and whether they are up or dead.

    A server is up if its process is alive and it accepts connections. Exit codes: 0 all are up, 1
    some are dead, 2 there is no cluster.
    """
    cluster = read_cluster(output / FOLDER)
    up = [cluster.is_up(server) for server in cluster.servers]
    for server, is_up in zip(cluster.servers, up, strict=True):
        state = "up" if is_up else "dead"
        typer.echo(f"{server.name:<19} {cluster.address_of(server):<16} {server.pid:>8}  {state}")
    if not all(up):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def stop(output: OutputOption = OUTPUT) -> None:
    """Stop the servers; a server that ignores SIGTERM is killed.

    A process that was given the id of a dead server is left alone. Exit codes: 0 stopped, 2 there
    is no cluster.
    """
    stop_cluster(output / FOLDER, typer.echo)
    typer.echo(f"removed {shown(output / 'cluster' / FILE)}")


def _how_to_connect(folder: Path) -> str:
    file = folder / FILE
    return f"""\
They run until `{command("stop", folder)}`.

In a notebook, with TF_USE_LEGACY_KERAS=1 in the environment before TensorFlow is imported:
  from trainer_module.strategies import persistent
  strategy = persistent.connect({str(file.resolve())!r})

As a run:
  TF_CONFIG="$(cat {shlex.quote(shown(file))})" \\
    python local_runner.py run --set train.strategy=parameter_server"""
