"""Shows plans and the doctor's findings on the screen."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from pipeline.cli.doctor import Level, examine
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.metadata.store import check_store
from pipeline.runs.logs import captured

_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}


def show_plan(config: PipelineConfig, output: Path, verbose: bool) -> None:
    """Shows what a run would do: a line per component, with the reason."""
    layout = Layout.of(config, output)
    check_store(config, layout)
    with _quiet(verbose) as console:
        console.print(f"[bold]{config.name}[/bold], what a run would do now")
        from pipeline.runs.plan import make_plan

        runs = 0
        for component in make_plan(config, layout):
            runs += component.runs
            word = "[green]runs  [/green]" if component.runs else "[cyan]cached[/cyan]"
            console.print(f"  {component.name:<16}  {word}  {escape(component.why)}")
        if not runs:
            console.print("\nnothing to do: a run would only confirm this")


def show_findings(output: Path, verbose: bool) -> bool:
    """Shows the doctor's findings as they come; returns whether there is no problem."""
    healthy = True
    with _quiet(verbose) as console:
        for finding in examine(output):
            healthy = healthy and finding.level is not Level.PROBLEM
            word = f"[{_COLOURS[finding.level]}]{finding.level.value:<8}[/]"
            console.print(f"  {word} {finding.subject:<27} {escape(finding.found)}")
            if finding.advice:
                console.print(f"  {'':<8} {'':<27} -> {escape(finding.advice)}")
        console.print("\nready" if healthy else "\nnot ready: mend the problems above")
    return healthy


@contextmanager
def _quiet(verbose: bool) -> Iterator[Console]:
    """A console, while what libraries print goes to a file that is forgotten."""
    with tempfile.TemporaryDirectory(prefix="scopeline-") as folder:  # noqa: SIM117
        with captured(Path(folder) / "log", verbose) as stream:
            yield Console(file=stream, highlight=False, soft_wrap=True)
