"""The proposal of a config for the data at a path, checked as a run checks the data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.example_gen.formats import OnBadFile
from components.example_gen.picture_files import BrokenPictureError
from pipeline.config.settings import NAME_PATTERN
from pipeline.first_config.beginnings import read_beginning
from pipeline.first_config.checking import check_proposal
from pipeline.first_config.finding import MAX_FILES, find_data
from pipeline.first_config.found_data import FoundData
from pipeline.first_config.proposal import Proposal, choose_metrics, task_comment
from pipeline.first_config.tables import ChooseLabel, Table, choose_label, propose_table
from trainer_module.errors import counted
from trainer_module.settings.tasks import as_task

_LABEL = "label"
"""The usual name of the label of pictures, of which no column has the name."""
_GENERIC = {
    "train",
    "training",
    "data",
    "dataset",
    "rows",
    "file",
    "table",
    "test",
    "images",
    "tmp",
}
"""The names of files and folders that do not tell what the data is about."""


def propose(path: str, label: str | None, choose: ChooseLabel) -> Proposal:
    """Returns the config for the data at a path.

    Args:
      path: a local file, folder or glob.
      label: the column to predict, or None to choose it among the likely ones.
      choose: the function that chooses the label.

    Raises:
      DataError: the data cannot be used; a run with the config would end with the same sentence.
    """
    data, name = find_data(path), _pipeline_name(Path(path))
    if data.holds_images:
        proposal = _propose_pictures(data, name, label or _LABEL)
        try:
            check_proposal(proposal.config)
        except BrokenPictureError as error:
            proposal = _without_broken_pictures(proposal, str(error))
            check_proposal(proposal.config)
        return proposal
    with TemporaryDirectory(prefix="scopeline-init-") as scratch:
        if data.table:
            file = Path(scratch) / data.path
            file.write_text(data.table)
            data = replace(data, files=(str(file),))
        beginning = read_beginning(data, Path(scratch), label)
        table = Table.of(data, beginning)
        proposal = propose_table(table, name, choose_label(table, label, choose))
        check_proposal(proposal.config, beginning)
        return proposal


def _pipeline_name(path: Path) -> str:
    """Returns the name of the pipeline: the name of the file, or of a folder that contains it."""
    whole = path.absolute()
    parts = [whole.name.split(".")[0], *(folder.name for folder in whole.parents)]
    words = (re.sub(r"[^a-z0-9_-]+", "_", part.lower()).strip("_-")[:63] for part in parts)
    names = (word for word in words if re.fullmatch(NAME_PATTERN, word))
    return next((name for name in names if name not in _GENERIC), "model")


def _propose_pictures(data: FoundData, name: str, label: str) -> Proposal:
    """Returns the config for pictures in folders or IDX files, whose label is no column."""
    section: dict[str, Any] = {"format": data.format, "path": data.path, "label": label}
    if data.splits:
        section["splits"] = dict(data.splits)
    elif data.format == "images":
        section["stratify"] = True
    task = as_task("binary" if data.classes == 2 else "multiclass")
    place = "the name of its folder" if data.format == "images" else "from the files of labels"
    config = {
        "name": name,
        "data": section,
        "task": task.kind,
        "evaluate": choose_metrics(task, []),
    }
    comments = {
        "data.label": f"the class of a picture, {place}",
        "data.path": "the folder of the pictures",
        "task": task_comment(task, are_numbers=False),
    }
    return Proposal(config, comments, _count(data), notes=data.notes)


def _count(data: FoundData) -> str:
    """Returns the numbers of pictures and classes in words, or an empty string for IDX files."""
    if not data.pictures:
        return ""
    least = "at least " if data.pictures >= MAX_FILES else ""
    return f"{least}{counted(data.pictures, 'picture')} of {counted(data.classes, 'class')}"


def _without_broken_pictures(proposal: Proposal, error: str) -> Proposal:
    """Returns the proposal with the setting that leaves out the pictures that are broken."""
    section = {**proposal.config["data"], "on_bad_file": OnBadFile.SKIP.value}
    note = f"{error.partition('):')[0]}): data.on_bad_file: skip leaves out broken pictures"
    return replace(
        proposal,
        config={**proposal.config, "data": section},
        comments={
            **proposal.comments,
            "data.on_bad_file": "leave out broken pictures; the run counts them",
        },
        notes=(*proposal.notes, note),
    )
