"""Deletes old versions, and old runs with their artifacts, according to `schedule.keep`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.versions import OUTGOING_PREFIX, delete_abandoned, delete_atomically
from pipeline.config.sections.schedule import (
    ALL,
    DriftSettings,
    KeepSettings,
    ScheduleSettings,
)
from pipeline.layout import Layout
from pipeline.records.data_records import SpanRecords, trainings
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata_store import connection_config, forget
from pipeline.versions.artifacts import (
    ArtifactRecords,
    delete_files,
    find_deletable_records,
    retire_artifacts,
    size_of,
)
from pipeline.versions.catalog import Version, find_serving, read_catalog
from pipeline.versions.waiting import retained_waiting
from trainer_module.errors import counted

logger = logging.getLogger(__name__)

KEYS: Set[str] = KeepSettings.model_fields.keys()
"""The keys of `schedule.keep`."""


@dataclass(frozen=True)
class Retention:
    """The retention of a pipeline, which deletes expired files and records each deletion.

    These are kept in any case:
    - the version in service, and the models of existing versions;
    - the newest models that wait for a push, and the latest blessed model;
    - the latest completed run, with the spans that it was trained on;
    - the span with which drift is measured;
    - a remote serving folder: the store has its own rules.

    After an interruption, the next call continues, and does not report the earlier deletions. If
    the config does not set `keep`, the run before the first deletion announces it.
    """

    schedule: ScheduleSettings | None
    """The schedule, whose `keep` has the number of versions and runs to keep. None keeps all
    versions and runs."""
    drift: DriftSettings
    """The settings of drift, which determine the span with which drift is measured."""
    metadata: str | None
    """The config's key `metadata`, or None for a SQLite file in the output folder."""
    layout: Layout
    event_log: EventLog

    def apply(self) -> list[str]:
        """Deletes everything that is not kept; the caller must hold the pipeline's lock.

        Returns:
          Sentences about announced and completed deletions, or no sentences.
        """
        announced, deleted = self._apply()
        return announced + deleted

    def delete_expired(self) -> list[str]:
        """Deletes, at the end of a run, everything that is not kept.

        An error is logged, and the next run tries again.

        Returns:
          Sentences about announced deletions, and about the first completed deletion.
        """
        try:
            is_first = self.event_log.last(EventKind.DELETED) is None
            announced, deleted = self._apply()
        except Exception:
            logger.exception("Old versions or runs could not be deleted")
            return []
        for line in [*announced, *deleted]:
            logger.info("Retention: %s", line)
        return announced + (deleted if is_first else [])

    @property
    def _keep(self) -> KeepSettings:
        """The settings `keep`; without a schedule the defaults, which then only limit the models
        that wait.
        """
        return (self.schedule or ScheduleSettings()).keep

    def _apply(self) -> tuple[list[str], list[str]]:
        """Deletes everything that is not kept.

        Returns:
          Sentences about announced deletions, and sentences about completed deletions.
        """
        layout, event_log = self.layout, self.event_log
        expired = find_expired(self.schedule, layout, event_log)
        configured = _configured_keys(self.schedule, event_log)
        announced = _announce(self._keep, expired.only(KEYS - configured), event_log)
        deleted = Deleted()
        try:
            self._delete(expired.only(configured), deleted)
        finally:
            recorded = deleted.record(event_log)
        return announced, recorded

    def _delete(self, expired: Expired, deleted: Deleted) -> None:
        """Deletes expired versions, artifacts and runs, and adds them to `deleted`."""
        layout = self.layout
        delete_abandoned(layout.run("").root)
        if not is_remote(layout.serving):
            delete_abandoned(Path(layout.serving))
        for version in expired.versions:
            size = size_of(Path(version.path))
            deleted.versions[version.path] = lineage_of(version) | {"bytes": size}
            delete_atomically(Path(version.path))
        if not expired.deletes_runs:
            return
        records = None
        if self.metadata is not None or layout.metadata.exists():
            connection = connection_config(self.metadata, layout)
            records = retire_artifacts(layout, connection, expired.kept_runs, self._needed())
            deleted.artifacts |= {
                uri: size_of(Path(uri)) for uri in records.retired_uris if Path(uri).exists()
            }
            deleted.bytes += delete_files(layout, records)
        for root in (layout.run(run).root for run in expired.runs):
            deleted.runs[str(root)] = size_of(root)
            delete_atomically(root)
        if records is not None:
            # The records come last, as a busy or full store may refuse; the next call then deletes
            # them.
            self._forget_runs(records, expired.kept_runs)

    def _needed(self) -> set[str]:
        """Returns the URIs of artifacts that are kept even if their runs are deleted."""
        layout, event_log = self.layout, self.event_log
        needed = {v.model for v in read_catalog(layout, event_log) if v.model is not None}
        for waiting in retained_waiting(self._keep, event_log):
            folders = (waiting.variants_in(layout), waiting.certificate_in(layout))
            needed |= {waiting.model, *(str(folder) for folder in folders if folder is not None)}
        return needed | _drift_reference(self.drift, event_log)

    def _forget_runs(self, records: ArtifactRecords, kept: Set[str]) -> None:
        """Deletes the metadata of runs that no longer exist."""
        events = self.event_log.events(EventKind.STARTED)
        own = {event.run for event in events if event.run is not None}
        executions, artifacts = find_deletable_records(records, self.layout.name, own, kept)
        if executions or artifacts:
            forget(self.metadata, self.layout, executions, artifacts)


def _configured_keys(schedule: ScheduleSettings | None, event_log: EventLog) -> Set[str]:
    """Returns the keys of `schedule.keep` that the config sets, or all keys if a deletion has been
    announced.
    """
    if schedule is None or event_log.last(EventKind.TO_DELETE) is not None:
        return KEYS
    return schedule.keep.model_fields_set


def _announce(keep: KeepSettings, expired: Expired, event_log: EventLog) -> list[str]:
    """Announces the deletions by default values of `schedule.keep`; returns a sentence."""
    if not expired:
        return []
    message = (
        f"the next run deletes {expired}, as the newest {keep.versions} versions and {keep.runs} "
        "runs are kept; to keep all: schedule: {keep: {versions: all, runs: all}}"
    )
    event_log.record(
        EventKind.TO_DELETE,
        message,
        versions=[version.number for version in expired.versions],
        runs=list(expired.runs),
    )
    return [message]


def _drift_reference(drift: DriftSettings, event_log: EventLog) -> set[str]:
    """Returns the URI of the examples with which the next span is compared for drift."""
    if not drift.columns:
        return set()
    records = SpanRecords(event_log)
    number = records.compared_with(sys.maxsize, drift.on_drift)
    reading = None if number is None else records.last_reading(number)
    return set() if reading is None else {reading.details["uri"]}


@dataclass
class Deleted:
    """The versions, runs and artifacts that were deleted, with their sizes in bytes."""

    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The lineage of each version with its `bytes`, by path."""
    runs: dict[str, int] = field(default_factory=dict)
    """The size of each run, by path."""
    artifacts: dict[str, int] = field(default_factory=dict)
    """The size of each artifact, by URI."""
    bytes: int = 0
    """The size of other files, such as the working files of executions."""

    def record(self, event_log: EventLog) -> list[str]:
        """Records the deletions. A path that still exists does not count: its deletion failed.

        Returns:
          A sentence about the deletions, or no sentence if nothing was deleted.
        """
        versions = [lineage for path, lineage in self.versions.items() if not Path(path).exists()]
        runs = {path: size for path, size in self.runs.items() if not Path(path).exists()}
        artifacts = {uri: size for uri, size in self.artifacts.items() if not Path(uri).exists()}
        if not (versions or runs or artifacts):
            return []
        freed = sum(lineage["bytes"] for lineage in versions) + self.bytes
        freed += sum(runs.values()) + sum(artifacts.values())
        numbers = [lineage["version"] for lineage in versions]
        message = _describe(numbers, len(runs), len(artifacts), freed)
        event_log.record(
            EventKind.DELETED,
            message,
            versions=numbers,
            lineage=versions,
            runs=[Path(path).name for path in runs],
            artifacts=len(artifacts),
            bytes=freed,
        )
        return [message]


def _describe(versions: list[int], runs: int, artifacts: int, freed: int) -> str:
    """Returns a sentence such as `1 version deleted (17), 2 runs and 24 artifacts deleted, 9.1
    MB`.
    """
    parts = []
    if versions:
        names = ", ".join(map(str, versions))
        parts.append(f"{counted(len(versions), 'version')} deleted ({names})")
    if runs or artifacts:
        parts.append(f"{counted(runs, 'run')} and {counted(artifacts, 'artifact')} deleted")
    return f"{', '.join(parts)}, {freed / 1e6:.1f} MB"


@dataclass(frozen=True)
class Expired:
    """The versions and runs to delete, and the runs to keep."""

    versions: tuple[Version, ...] = ()
    runs: tuple[str, ...] = ()
    kept_runs: frozenset[str] = frozenset()
    deletes_runs: bool = False
    """Whether runs are deleted at all; if not, `kept_runs` has no meaning."""

    def only(self, keys: Set[str]) -> Expired:
        """Returns only the deletions that belong to the given keys of `schedule.keep`."""
        part = self if "versions" in keys else replace(self, versions=())
        return part if "runs" in keys else replace(part, runs=(), deletes_runs=False)

    def __bool__(self) -> bool:
        """Returns whether there is anything to delete."""
        return bool(self.versions or self.runs)

    def __str__(self) -> str:
        """Returns text such as `version 17 and 3 runs, the oldest 2026-01-05T03-00-00.123456`."""
        numbers = ", ".join(str(version.number) for version in self.versions)
        parts = [f"version {numbers}"] if self.versions else []
        if self.runs:
            parts.append(f"{counted(len(self.runs), 'run')}, the oldest {self.runs[0]}")
        return " and ".join(parts)


def find_expired(
    schedule: ScheduleSettings | None,
    layout: Layout,
    event_log: EventLog,
    coming_runs: int = 0,
    coming_versions: int = 0,
) -> Expired:
    """Returns the versions and runs to delete; without a schedule, nothing is deleted.

    Args:
      coming_runs: the number of runs that will be added to the existing runs.
      coming_versions: the number of versions that will be added to the existing versions.
    """
    if schedule is None:
        return Expired()
    keep = schedule.keep
    versions: list[Version] = []
    # An object store has its own rules for deletion.
    if keep.versions != ALL and not is_remote(layout.serving):
        catalog = read_catalog(layout, event_log)
        versions = _expired_versions(catalog, keep.versions - coming_versions)
    if keep.runs == ALL or layout.remote is not None:
        return Expired(tuple(versions))
    recorded = _recorded_runs(event_log)
    runs = _runs(layout, recorded)
    runs_to_keep = {
        *runs[max(0, len(runs) + coming_runs - keep.runs) :],
        *_last_finished(event_log),
    }
    if not coming_runs:
        # The last run is kept even if a wrong clock makes it seem old: the console has just shown
        # the path of its log.
        runs_to_keep |= set(recorded[-1:])
    old = tuple(run for run in runs if run not in runs_to_keep)
    return Expired(tuple(versions), old, frozenset(runs_to_keep), deletes_runs=True)


def lineage_of(version: Version) -> dict[str, Any]:
    """Returns the details of a version that its deletion records."""
    return {
        "version": version.number,
        "model": version.model,
        "run": version.provenance.run,
        "window": version.details.get("window", []),
        "withdrawn": version.withdrawn,
        "reason": version.reason,
    }


def _expired_versions(catalog: Sequence[Version], keep: int) -> list[Version]:
    """Returns this pipeline's versions to delete, oldest first.

    These versions are kept:
    - all versions of the newest `keep` models that are not withdrawn;
    - the newest version and the version in service, with other versions of these models;
    - for rollbacks, if `keep` is more than 1: the newest usable version of another model than the
      model in service;
    - for inspection: withdrawn versions among the newest `keep` versions.
    """
    ours = [version for version in catalog if version.is_ours]
    # The copy of a rollback has the identity of its original.
    good = list(dict.fromkeys(v.identity for v in ours if not v.withdrawn))
    models_to_keep = {*good[: max(keep, 0)], *(v.identity for v in catalog[:1])}
    recent = {version.number for version in ours[: max(keep, 0)] if version.withdrawn}
    old = [v for v in ours if v.identity not in models_to_keep and v.number not in recent]
    if old and (serving := find_serving(catalog)) is not None:  # `find_serving` reads files.
        models_to_keep.add(serving.identity)
        previous = find_serving([v for v in catalog if v.identity != serving.identity])
        if previous is not None and keep > 1:
            models_to_keep.add(previous.identity)
    old = [version for version in old if version.identity not in models_to_keep]
    return sorted(old, key=lambda version: version.number)


def _recorded_runs(event_log: EventLog) -> list[str]:
    """Returns the ids of the runs in the event log, in the order of their start."""
    # A run that failed before its first component has no STARTED event.
    events = event_log.events(EventKind.STARTED, EventKind.FINISHED, EventKind.FAILED)
    return list(dict.fromkeys(event.run for event in events if event.run is not None))


def _runs(layout: Layout, recorded: Sequence[str]) -> list[str]:
    """Returns the ids of the existing runs, oldest first, even if the clock was set back.

    Args:
      recorded: the runs in the event log, oldest first. Runs that the event log lacks, because it
        was deleted, are sorted among these by the times of their folders.
    """
    folder = layout.run("").root
    paths = folder.iterdir() if folder.is_dir() else ()
    times = {p.name: p.stat().st_mtime for p in paths if not p.name.startswith(OUTGOING_PREFIX)}
    existing = [run for run in recorded if run in times]
    for later, run in pairwise(reversed(existing)):
        times[run] = min(times[run], times[later])
    rank = {run: number for number, run in enumerate(existing)}
    return sorted(times, key=lambda run: (times[run], rank.get(run, len(rank))))


def _last_finished(event_log: EventLog) -> set[str]:
    """Returns the last run that trained on a window, or used a cached training.

    The next run reuses the artifacts of this run, even if newer runs have failed early.
    """
    runs = [event.run for event in trainings(event_log) if event.run is not None]
    return set(runs[-1:])
