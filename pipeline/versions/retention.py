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
    """The deletion of everything that a pipeline does not keep; the event log records it.

    Kept are the version that serves, the models of existing versions, the newest models that wait
    for a push, the latest blessed model, the latest run that completed with the spans that it was
    trained on, and the span with which drift is measured. A remote serving folder is left alone:
    the store has its own rules.

    After an interruption, the next call continues; what was deleted before is then not reported. If
    the config does not set `keep`, the first deletion is announced one run before.
    """

    schedule: ScheduleSettings | None
    """The schedule, whose `keep` is the number of versions and runs to keep; without one, all are
    kept.
    """
    drift: DriftSettings
    """The settings of drift, which decide whether and from which span it is measured."""
    metadata: str | None
    """The config's key `metadata`; None for a SQLite file in the output folder."""
    layout: Layout
    """The layout of the pipeline."""
    event_log: EventLog
    """The event log of the pipeline."""

    def apply(self) -> list[str]:
        """Deletes what is not kept; the caller holds the pipeline's lock.

        Returns:
          Sentences about what was deleted, or will be; empty if nothing was.
        """
        announced, deleted = self._apply()
        return announced + deleted

    def delete_expired(self) -> list[str]:
        """Deletes what is not kept at the end of a run; errors are logged, and the next run tries
        again.

        Returns:
          Sentences about what will be deleted, and about the first deletion.
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
        return (self.schedule or ScheduleSettings()).keep

    def _apply(self) -> tuple[list[str], list[str]]:
        """Returns sentences about what will be deleted, and about what was."""
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
        """Deletes what is not kept, and adds it to `deleted`."""
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
            # Last, as a busy or full store may refuse it; the next deletion then repeats it.
            self._forget_runs(records, expired.kept_runs)

    def _needed(self) -> set[str]:
        """Returns the URIs of artifacts that are needed, whatever runs they belong to."""
        layout, event_log = self.layout, self.event_log
        needed = {v.model for v in read_catalog(layout, event_log) if v.model is not None}
        for waiting in retained_waiting(self._keep, event_log):
            folders = (waiting.variants_in(layout), waiting.certificate_in(layout))
            needed |= {waiting.model, *(str(folder) for folder in folders if folder is not None)}
        return needed | _last_passed(self.drift, event_log)

    def _forget_runs(self, records: ArtifactRecords, kept: Set[str]) -> None:
        """Deletes the metadata of runs that no longer exist."""
        events = self.event_log.events(EventKind.STARTED)
        own = {event.run for event in events if event.run is not None}
        executions, artifacts = find_deletable_records(records, self.layout.name, own, kept)
        if executions or artifacts:
            forget(self.metadata, self.layout, executions, artifacts)


def _configured_keys(schedule: ScheduleSettings | None, event_log: EventLog) -> Set[str]:
    """Returns the keys of `schedule.keep` that the config sets; all, once a deletion was
    announced.
    """
    if schedule is None or event_log.last(EventKind.TO_DELETE) is not None:
        return KEYS
    return schedule.keep.model_fields_set


def _announce(keep: KeepSettings, expired: Expired, event_log: EventLog) -> list[str]:
    """Announces what will be deleted by default."""
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


def _last_passed(drift: DriftSettings, event_log: EventLog) -> set[str]:
    """Returns the URI of the examples with which the next span is compared for drift."""
    if not drift.columns:
        return set()
    records = SpanRecords(event_log)
    number = records.compared_with(sys.maxsize, drift.on_drift)
    reading = None if number is None else records.last_reading(number)
    return set() if reading is None else {reading.details["uri"]}


@dataclass
class Deleted:
    """The paths and sizes of what a deletion has removed so far."""

    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The lineage of each version with its `bytes`, by path."""
    runs: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    """The bytes of other files, such as the working files of executions."""

    def record(self, event_log: EventLog) -> list[str]:
        """Records what was deleted, which is less if a deletion failed.

        Returns:
          A sentence about what was deleted; none if nothing was.
        """
        versions = [found for path, found in self.versions.items() if not Path(path).exists()]
        runs = {path: size for path, size in self.runs.items() if not Path(path).exists()}
        artifacts = {uri: size for uri, size in self.artifacts.items() if not Path(uri).exists()}
        if not (versions or runs or artifacts):
            return []
        freed = sum(found["bytes"] for found in versions) + self.bytes
        freed += sum(runs.values()) + sum(artifacts.values())
        numbers = [found["version"] for found in versions]
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
        """Returns the part that some keys of `schedule.keep` cover."""
        chosen = self if "versions" in keys else replace(self, versions=())
        return chosen if "runs" in keys else replace(chosen, runs=(), deletes_runs=False)

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
    """Returns what is no longer kept; without a schedule, everything is kept.

    Args:
      schedule: the schedule of the pipeline.
      layout: the layout of the pipeline.
      event_log: the event log of the pipeline.
      coming_runs: the number of runs to expect besides the existing ones.
      coming_versions: the number of versions to expect besides the existing ones.
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
    kept = {*runs[max(0, len(runs) + coming_runs - keep.runs) :], *_last_finished(event_log)}
    if not coming_runs:
        # With any clock: the path of the last run's log has just been shown.
        kept |= set(recorded[-1:])
    old = tuple(run for run in runs if run not in kept)
    return Expired(tuple(versions), old, frozenset(kept), deletes_runs=True)


def lineage_of(version: Version) -> dict[str, Any]:
    """Returns the details to record of a deleted version."""
    return {
        "version": version.number,
        "model": version.model,
        "run": version.provenance.run,
        "window": version.details.get("window", []),
        "withdrawn": version.withdrawn,
        "reason": version.reason,
    }


def _expired_versions(catalog: Sequence[Version], keep: int) -> list[Version]:
    """Returns our versions to delete: not the newest good models, the served one, and recent
    withdrawals.

    If more than one version is kept, the newest undamaged version of another model than the served
    one is kept, for rollbacks.

    A withdrawn version does not count as a version to roll back to. It is kept for inspection until
    as many newer versions exist as are kept.
    """
    ours = [version for version in catalog if version.is_ours]
    # The copy of a rollback counts as its original.
    good = list(dict.fromkeys(v.identity for v in ours if not v.withdrawn))
    kept = {*good[: max(keep, 0)], *(v.identity for v in catalog[:1])}
    recent = {version.number for version in ours[: max(keep, 0)] if version.withdrawn}
    old = [v for v in ours if v.identity not in kept and v.number not in recent]
    if old and (serving := find_serving(catalog)) is not None:  # It reads files.
        kept.add(serving.identity)
        back = find_serving([v for v in catalog if v.identity != serving.identity])
        if back is not None and keep > 1:
            kept.add(back.identity)
    old = [version for version in old if version.identity not in kept]
    return sorted(old, key=lambda version: version.number)


def _recorded_runs(event_log: EventLog) -> list[str]:
    """Returns the ids of the runs in the event log, in the order of their start."""
    # A run that failed before its first component has only an end.
    events = event_log.events(EventKind.STARTED, EventKind.FINISHED, EventKind.FAILED)
    return list(dict.fromkeys(event.run for event in events if event.run is not None))


def _runs(layout: Layout, recorded: Sequence[str]) -> list[str]:
    """Returns the ids of the existing runs, oldest first, even if the clock was set back since.

    Args:
      layout: the layout of the pipeline.
      recorded: the runs in the event log, oldest first. Other runs, such as those before a new
        event log, are placed among these by their folders' times.
    """
    folder = layout.run("").root
    found = folder.iterdir() if folder.is_dir() else ()
    times = {p.name: p.stat().st_mtime for p in found if not p.name.startswith(OUTGOING_PREFIX)}
    begun = [run for run in recorded if run in times]
    for later, run in pairwise(reversed(begun)):
        times[run] = min(times[run], times[later])
    place = {run: number for number, run in enumerate(begun)}
    return sorted(times, key=lambda run: (times[run], place.get(run, len(place))))


def _last_finished(event_log: EventLog) -> set[str]:
    """Returns the last run that trained on a window, or used a cached training.

    The next run continues from its artifacts, though newer runs may have failed early.
    """
    runs = [event.run for event in trainings(event_log) if event.run is not None]
    return set(runs[-1:])
