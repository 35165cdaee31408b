"""Implements `scopeline init`: proposes a config for data, and writes it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from pipeline.cli.options import OUTPUT, OutputOption, flag, wide_console
from pipeline.config.schema_file import SCHEMA_FILE, check_replaceable
from pipeline.first_config.folder import CONFIG, check_absent, check_folder, place, write_files
from pipeline.first_config.proposal import Proposal
from pipeline.first_config.rendering import IGNORED, render_config, render_readme
from pipeline.layout import Layout
from pipeline.records.run_folders import LAST, StoredRun, every_run, find_run
from pipeline.report.text import visible
from trainer_module.errors import ConfigError
from trainer_module.typed_words import typed_program

_SHOWN = 5
"""The number of likely labels that are shown."""


def init(
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="A file, folder or glob of the data."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Predict this column.", show_default="the likeliest, or asked"
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Write to this folder.")
    ] = Path(),
    from_run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Write the config of a run: `last`, an id, or a folder."),
    ] = None,
    output: OutputOption = OUTPUT,
    force: Annotated[bool, flag("--force", f"Replace {CONFIG}.")] = False,
) -> None:
    """Propose a config for your data.

    Looks at the beginning of the data, and writes config.yaml with a comment on each line. With
    --from-run, writes the config of a run, with everything that the run chose.

    Example: scopeline init customers.csv --label churned

    Exit codes: 0 written, 2 the data is unusable, or config.yaml exists.
    """
    if (data is None) == (from_run is None):
        raise ConfigError(
            f"init: name the data, such as `{typed_program()} init customers.csv`, or "
            "--from-run RUN"
        )
    if data is not None:
        # The import is here, as only this command needs Arrow.
        from pipeline.first_config.finding import check_path

        check_path(data)
    check_folder(folder, force)
    check_replaceable(folder / SCHEMA_FILE, force)
    proposal = _from_run(from_run, output) if data is None else _from_data(data, label)
    if proposal.table:
        check_absent(folder / proposal.config["data"]["path"], force)
    _write(place(proposal, folder), folder, data, label, from_run)


def _from_data(data: str, label: str | None) -> Proposal:
    # The import is here, as only this command needs Arrow.
    from pipeline.first_config.proposing import propose

    return propose(data, label, _ask if _is_terminal() else _take_first)


def _from_run(name: str | None, output: Path) -> Proposal:
    from pipeline.first_config.recorded import recorded_config

    return recorded_config(_find(str(name), output))


def _find(name: str, output: Path) -> StoredRun:
    """Returns a run of any pipeline below an output folder, by id or folder.

    Raises:
      ConfigError: there is no such run, or several pipelines have one.
    """
    if Path(name).is_dir() or "/" in name:
        return find_run(Layout(output, ""), name)
    runs = sorted(every_run(output), key=lambda run: run.id, reverse=True)
    found = runs[:1] if name == LAST else [run for run in runs if run.id.startswith(name)]
    if len(found) != 1:
        problem = "several runs begin" if found else "no run begins"
        raise ConfigError(
            f"--from-run {name}: {problem} with this below {output}; name the folder of a run, such"
            f" as {runs[0].files.root if runs else output / 'NAME/runs/ID'}"
        )
    return found[0]


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _take_first(candidates: list[str]) -> str:
    if len(candidates) > 1:
        others = ", ".join(map(visible, candidates[1:_SHOWN]))
        more = " and others" if len(candidates) > _SHOWN else ""
        line = f"label: {visible(candidates[0])}, the likeliest; --label names another, such as"
        wide_console().print(escape(f"{line} {others}{more}"))
    return candidates[0]


def _ask(candidates: list[str]) -> str:
    """Asks for the label, unless only one column may be the label."""
    if len(candidates) == 1:
        return candidates[0]
    console = Console(highlight=False)
    console.print("Which column is to be predicted? The likeliest are:")
    for number, name in enumerate(candidates[:_SHOWN], 1):
        console.print(f"  {number}  {escape(visible(name))}")
    while True:
        answer = str(typer.prompt("A number, or the name of a column", default="1")).strip()
        if answer.isdecimal() and 1 <= int(answer) <= min(len(candidates), _SHOWN):
            return candidates[int(answer) - 1]
        if not answer.isdecimal() or answer in candidates:
            return answer


def _write(
    proposal: Proposal, folder: Path, data: str | None, label: str | None, from_run: str | None
) -> None:
    from pipeline.config.json_schema import config_schema

    program = typed_program(folder)
    words = [data] if data is not None else ["--from-run", str(from_run)]
    command = f"{program} init {shlex.join([*words, *(['--label', label] if label else [])])}"
    name = str(proposal.config["name"])
    tables = {str(proposal.config["data"]["path"]): proposal.table} if proposal.table else {}
    written, unchanged = write_files(
        folder,
        {SCHEMA_FILE: config_schema(), **tables, CONFIG: render_config(proposal, command)},
        {".gitignore": IGNORED, "README.md": render_readme(name, CONFIG, program)},
    )
    console = wide_console()
    for line in _describe(proposal):
        console.print(escape(line))
    console.print(escape(f"written: {', '.join(map(str, written))}"))
    if unchanged:
        console.print(escape(f"unchanged: {', '.join(map(str, unchanged))}"))
    move = "" if folder.resolve() == Path.cwd().resolve() else f"cd {shlex.quote(str(folder))} && "
    console.print(escape(f"next: {move}{program} run {CONFIG}"))


def _describe(proposal: Proposal) -> list[str]:
    """Returns the lines on the proposal for the screen."""
    data, task = proposal.config["data"], proposal.config["task"]
    kind = task if isinstance(task, str) else task["kind"]
    lines = [f"data: {data['path']} ({data['format']}), {proposal.rows or 'pictures'}"]
    lines += [f"columns: {proposal.columns}"] if proposal.columns else []
    lines += [f"label: {data.get('label', 'none')}; task: {kind}"]
    return [*map(visible, lines), *(f"note: {visible(note)}" for note in proposal.notes)]
