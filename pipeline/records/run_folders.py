"""Finds and reads the folders of runs below an output folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import dropwhile
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from components.pusher.versions import OUTGOING_PREFIX
from pipeline.layout import RUN_ID_TIME, Layout, RunLayout
from pipeline.records.summary import RunSummary
from trainer_module.errors import ConfigError, DataError, counted, shorten

LAST, PREVIOUS = "last", "previous"
"""The words for the run of a pipeline that began last, and for the run before it."""
_RUNS = "runs"
_MAX_NAMED = 5
_HEAD_BYTES = 4096
"""The part of a summary that contains `started`."""
MAX_EARLIER = 30
"""The maximum number of earlier runs that a report shows."""


@dataclass(frozen=True)
class StoredRun:
    """A run whose folder exists."""

    pipeline: str
    files: RunLayout

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.files.root.name

    @property
    def began(self) -> float:
        """The start of the run in seconds since 1970, as recorded in the summary.

        Without a readable record, the time in the id counts, or the last change of the folder.
        """
        with suppress(OSError, ValueError, KeyError, TypeError):
            # The whole summary may have a megabyte.
            with self.files.summary.open("rb") as opened:
                head = from_json(opened.read(_HEAD_BYTES), allow_partial=True)
            return datetime.fromisoformat(head["started"]).timestamp()
        with suppress(ValueError):
            return datetime.strptime(self.id, RUN_ID_TIME).astimezone().timestamp()
        with suppress(OSError):
            return self.files.root.stat().st_mtime
        return 0.0  # The folder was deleted meanwhile.

    def read(self) -> RunSummary:
        """Returns the summary of the run.

        Raises:
          DataError: the summary is missing, damaged, or of a later release.
        """
        path = self.files.summary
        try:
            return RunSummary.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise DataError(
                f"{path} does not exist: the run ended before it began, or somebody deleted the "
                "file."
            ) from None
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}).") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            problem = shorten(first["msg"]) + (f" at {where}" if where else "")
            raise DataError(
                f"{path} is damaged, or a later release wrote it ({problem})."
            ) from None


def list_pipelines(output: Path) -> list[str]:
    """Returns the names of the pipelines that have runs below an output folder, sorted."""
    if not output.is_dir():
        return []
    return sorted(path.name for path in output.iterdir() if _is_folder(path / _RUNS))


def _is_folder(path: Path) -> bool:
    """Returns whether a path is a folder that this user may read; lost+found often is not."""
    try:
        return path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    except OSError:
        return False


def list_runs(output: Path, pipeline: str) -> list[StoredRun]:
    """Returns the runs of a pipeline, without those being deleted; runs that began last are first.

    The ids of runs on Kubeflow have no order.
    """
    folder = output / pipeline / _RUNS
    if not folder.is_dir():
        return []
    folders = [path for path in folder.iterdir() if path.is_dir()]
    kept = [path for path in folders if not path.name.startswith(OUTGOING_PREFIX)]
    runs = [StoredRun(pipeline, RunLayout(path)) for path in kept]
    return sorted(runs, key=lambda run: (run.began, run.id), reverse=True)


def read_earlier(run: StoredRun) -> list[RunSummary]:
    """Returns the readable summaries of the last runs that began before a run, oldest first."""
    runs = list_runs(run.files.root.parent.parent.parent, run.pipeline)
    earlier = [*dropwhile(lambda other: other.id != run.id, runs)][1 : MAX_EARLIER + 1]
    summaries = []
    for other in reversed(earlier):
        with suppress(DataError):
            summaries.append(other.read())
    return summaries


def find_run(layout: Layout, name: str) -> StoredRun:
    """Returns a run of a pipeline.

    Args:
      name: an id, the beginning of an id, `last`, `previous`, or the path of a run's folder.

    Raises:
      ConfigError: no run, or more than one run, has this name.
    """
    folder = Path(name)
    if folder.name != name or folder.is_dir():
        return _run_at(folder)
    runs = list_runs(layout.output, layout.name)
    if not runs:
        raise ConfigError(_no_run(layout))
    if name in (LAST, PREVIOUS):
        index = 0 if name == LAST else 1
        if index >= len(runs):
            raise ConfigError(f"{name}: pipeline {layout.name} has only one run, {runs[0].id}")
        return runs[index]
    found = [run for run in runs if run.id == name] or [r for r in runs if r.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"run {name}: {counted(len(found), 'run')} of {layout.name} begin with this; give more "
            f"characters, such as {_names(found)}"
        )
    raise ConfigError(
        f"run {name}: pipeline {layout.name} has no such run; give `{LAST}`, `{PREVIOUS}`, or the "
        f"beginning of an id: {_names(runs)}"
    )


def _run_at(folder: Path) -> StoredRun:
    folder = (folder.parent if folder.name == "summary.json" else folder).resolve()
    files = RunLayout(folder)
    if not files.summary.is_file():
        raise ConfigError(
            f"{folder}: this is not the folder of a run, as it has no summary.json; a run's folder "
            f"is OUTPUT/PIPELINE/{_RUNS}/ID"
        )
    return StoredRun(folder.parent.parent.name, files)


def _no_run(layout: Layout) -> str:
    others = [name for name in list_pipelines(layout.output) if name != layout.name]
    hint = f"; there are runs of {', '.join(others)}: give their --config" if others else ""
    return f"{layout.root / _RUNS}: pipeline {layout.name} has no run yet{hint}"


def _names(runs: list[StoredRun]) -> str:
    shown = ", ".join(run.id for run in runs[:_MAX_NAMED])
    more = len(runs) - _MAX_NAMED
    return f"{shown} and {counted(more, 'older run')}" if more > 0 else shown


def every_run(output: Path) -> Iterator[StoredRun]:
    """Yields the runs of all pipelines, in each pipeline the runs that began last first."""
    for pipeline in list_pipelines(output):
        yield from list_runs(output, pipeline)
