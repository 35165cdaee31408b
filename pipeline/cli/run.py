"""Implements `scopeline run` and `scopeline plan`, except for the options of the commands."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from pipeline.cli.options import load_here, quiet_console
from pipeline.component_ids import ComponentId
from pipeline.config.sections.push import Approve
from pipeline.config.settings import PipelineConfig
from pipeline.data.fetching import addresses_to_fetch
from pipeline.layout import Layout
from pipeline.records.event_log import EventLog
from pipeline.records.metadata_store import check_store
from pipeline.run_context import RunRequest, resolve_run
from pipeline.runs.run import RunEnd, check_new_data, run_pipeline
from pipeline.versions.hold import read_hold
from pipeline.versions.retention import find_expired


def run_file(
    path: Path, overrides: list[str], output: Path, verbose: bool, request: RunRequest
) -> RunEnd:
    """Runs the pipeline of a config file; raises ScopelineError as `run_pipeline` does."""
    return run_pipeline(load_here(path, overrides), output, verbose, request)


def plan_file(path: Path, overrides: list[str], output: Path, verbose: bool) -> None:
    """Shows what a run of a config file would do; raises ScopelineError as `show_plan` does."""
    show_plan(load_here(path, overrides), output, verbose)


def show_plan(config: PipelineConfig, output: Path, verbose: bool) -> None:
    """Shows what a run would do: a line per component and per column, with reasons.

    Raises:
      DataError: the data is unusable, so a run would fail.
    """
    layout = Layout.of(config.name, config.push, output)
    check_store(config.metadata, layout)
    with quiet_console(verbose) as console:
        console.print(f"[bold]{config.name}[/bold]: what a run would do now")
        from pipeline.runs.columns import plan_columns
        from pipeline.runs.plan import make_plan
        from pipeline.runs.training import model_note, training_notes

        runs, trains, pushes, notes = 0, False, False, list[str]()
        for component in make_plan(config, layout):
            runs += component.runs
            action = "[green]runs  [/green]" if component.runs else "[cyan]cached[/cyan]"
            console.print(f"  {component.name:<16}  {action}  {escape(component.reason)}")
            trains |= component.runs and component.name == ComponentId.TRAINER
            pushes = component.runs and component.name == ComponentId.PUSHER
        context = resolve_run(config, layout)
        check_new_data(context)
        columns = plan_columns(context) if config.family.has_label else None
        for line in columns.lines() if columns else ():
            console.print(line, markup=False)
        notes += context.window.notes if context.window else ()
        notes += columns.notes if columns else ()
        notes += [f"a run would fetch {address}" for address in addresses_to_fetch(config)]
        if trains:
            types = columns.choices if columns else {}
            if config.family.has_label:
                notes += model_note(config, types)
            notes += training_notes(config.train)
        if (hold := read_hold(layout)) is not None:
            notes.append(f"{hold}; a blessed model would wait")
        elif config.push.approve is Approve.MANUAL:
            notes.append("push.approve is manual: a blessed model would wait for `approve`")
        expired = find_expired(config.schedule, layout, EventLog(layout.event_log), 1, int(pushes))
        if expired:
            if_pushed = ", if the model is pushed" if pushes and expired.versions else ""
            notes.append(f"the run would delete {expired} (schedule.keep){if_pushed}")
        for note in notes:
            console.print(f"note: {escape(note)}")
        if not runs:
            console.print("\nnothing to do: a run would change nothing")
