"""Deletes old versions, and old runs with their artifacts, as `schedule.keep` says."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.versions import delete_abandoned, delete_version
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.summary import Status
from pipeline.versions.artifacts import Freed, delete_artifacts, size_of
from pipeline.versions.catalog import read_catalog
from pipeline.versions.waiting import still_waiting

logger = logging.getLogger(__name__)


def apply_retention(
    config: PipelineConfig, layout: Layout, event_log: EventLog, connection: Any
) -> list[str]:
    """Deletes what a pipeline need not keep; what was deleted is in the event log.

    The version that serves stays, the models behind versions that are there, those that wait to be
    pushed, the latest blessed model, the latest run that came to its end, and with it the spans
    that it was trained on. A remote serving folder is left alone: its versions are for the store's
    own rules to delete.

    Killed at whatever moment, the next call goes on.

    Args:
      config: of the pipeline.
      layout: of the pipeline; its lock is held.
      event_log: of the pipeline.
      connection: how ML Metadata reaches its store.

    Returns:
      What was deleted, in sentences for people; empty if nothing was.
    """
    keep = config.schedule_or_default.keep
    lines = []
    if keep.versions is not None and not is_remote(layout.serving):
        lines += _delete_versions(layout, event_log, keep.versions)
    if keep.runs is not None:
        lines += _delete_runs(config, layout, event_log, connection, keep.runs)
    return lines


def delete_expired(
    config: PipelineConfig, layout: Layout, event_log: EventLog, connection: Any
) -> None:
    """Applies the retention at the end of a run; what cannot be deleted, the next run deletes."""
    try:
        for deleted in apply_retention(config, layout, event_log, connection):
            logger.info("Deleted: %s", deleted)
    except Exception:
        logger.exception("Old versions or runs could not be deleted")


def _delete_versions(layout: Layout, event_log: EventLog, keep: int) -> list[str]:
    """Deletes all but the newest versions that a rollback may go to.

    Withdrawn ones do not count, and go with the good ones of their time: what there is to go back
    to is not pushed out by what went wrong.
    """
    delete_abandoned(Path(layout.serving))
    catalog = read_catalog(layout, event_log)
    # A copy that a rollback made counts as what it is a copy of.
    good = {v.identity: v.number for v in catalog if v.is_ours and not v.withdrawn}
    serving = [version.number for version in catalog if version.serves]
    oldest = min([*serving, *list(good.values())[:keep]], default=0)
    old = [version for version in catalog if version.number < oldest and version.is_ours]
    size = sum(size_of(Path(version.path)) for version in old)
    for version in old:
        delete_version(Path(version.path))
    if not old:
        return []
    names = ", ".join(str(version.number) for version in old)
    message = f"{_count(len(old), 'version')} deleted ({names}), {_megabytes(size)}"
    event_log.record(EventKind.DELETED, message, versions=[v.number for v in old], bytes=size)
    return [message]


def _delete_runs(
    config: PipelineConfig, layout: Layout, event_log: EventLog, connection: Any, keep: int
) -> list[str]:
    """Deletes all but the newest runs, and the artifacts that only those have used."""
    folder = layout.run("").root
    # By time: the ids of runs on Kubeflow say nothing of it.
    found = sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime) if folder.is_dir() else []
    runs = [path.name for path in found]
    kept = set(runs[-keep:]) | _last_finished(event_log)
    models = {v.model for v in read_catalog(layout, event_log) if v.model is not None}
    models |= {waiting.model for waiting in still_waiting(event_log)}
    freed = Freed()
    if config.metadata is not None or layout.metadata.exists():
        freed = delete_artifacts(layout, connection, kept, models)
    old = [layout.run(run).root for run in runs if run not in kept]
    for run in old:
        freed.bytes += size_of(run)
        shutil.rmtree(run)
    if not old and not freed.artifacts:
        return []
    message = (
        f"{_count(len(old), 'run')} and {_count(freed.artifacts, 'artifact')} deleted, "
        f"{_megabytes(freed.bytes)}"
    )
    event_log.record(
        EventKind.DELETED,
        message,
        runs=[run.name for run in old],
        artifacts=freed.artifacts,
        bytes=freed.bytes,
    )
    return [message]


def _last_finished(event_log: EventLog) -> set[str]:
    """The last run that trained on a window, or found it trained on already.

    What it used is what the next one goes on from, though newer runs may have failed early.
    """
    for event in reversed(event_log.events(EventKind.FINISHED)):
        if event.run is not None and event.details["status"] != Status.VALIDATED:
            return {event.run}
    return set()


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
