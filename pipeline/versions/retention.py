"""Deletes old versions, and old runs with their artifacts, as `schedule.keep` says."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.versions import OUTGOING_PREFIX, delete_abandoned, delete_whole
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
    find_forgettable,
    retire_artifacts,
    size_of,
)
from pipeline.versions.catalog import Version, find_serving, read_catalog
from pipeline.versions.waiting import kept_waiting
from trainer_module.errors import counted

logger = logging.getLogger(__name__)

KEYS: Set[str] = KeepSettings.model_fields.keys()
"""Of `schedule.keep`."""


@dataclass(frozen=True)
class Retention:
    """Deletes what a pipeline need not keep; what was deleted is in the event log.

    The version that serves stays, the models behind versions that are there, the newest that wait
    to be pushed, the latest blessed model, the latest run that came to its end, and with it the
    spans that it was trained on, and the one that drift is measured from. A remote serving folder
    is left alone: its versions are for the store's own rules to delete.

    Killed at whatever moment, the next call goes on; what was deleted before is then not told. A
    config that says nothing of `keep` deletes nothing before it has been said once what goes.
    """

    schedule: ScheduleSettings | None
    """Its `keep` says how many versions and runs stay; without a schedule, all do."""
    drift: DriftSettings
    """Says whether drift is measured, and from which span."""
    metadata: str | None
    """The config's key of that name; None for a SQLite file in the output folder."""
    layout: Layout
    """Of the pipeline."""
    event_log: EventLog
    """Of the pipeline."""

    def apply(self) -> list[str]:
        """Deletes what is not kept; the pipeline's lock is held.

        Returns:
          What was deleted, or will be, in sentences for people; empty if nothing was.
        """
        announced, deleted = self._apply()
        return announced + deleted

    def delete_expired(self) -> list[str]:
        """Returns the same at the end of a run; what cannot be deleted, the next run deletes.

        Returns:
          What people should know: what will be deleted, and what has been for the first time.
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
        """Returns what will be deleted, and what was."""
        layout, event_log = self.layout, self.event_log
        expired = find_expired(self.schedule, layout, event_log)
        asked = _asked_for(self.schedule, event_log)
        announced = _announce(self._keep, expired.only(KEYS - asked), event_log)
        deleted = Deleted()
        try:
            self._delete(expired.only(asked), deleted)
        finally:
            told = deleted.record(event_log)
        return announced, told

    def _delete(self, expired: Expired, deleted: Deleted) -> None:
        """Deletes what is not kept, and says so as it goes."""
        layout = self.layout
        delete_abandoned(layout.run("").root)
        if not is_remote(layout.serving):
            delete_abandoned(Path(layout.serving))
        for version in expired.versions:
            size = size_of(Path(version.path))
            deleted.versions[version.path] = lineage_of(version) | {"bytes": size}
            delete_whole(Path(version.path))
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
            delete_whole(root)
        if records is not None:
            # Last: a store that is busy or full may refuse it; the next deletion makes up for it.
            self._forget_runs(records, expired.kept_runs)

    def _needed(self) -> set[str]:
        """Returns the uris of artifacts that are needed, whatever runs they are of."""
        layout, event_log = self.layout, self.event_log
        needed = {v.model for v in read_catalog(layout, event_log) if v.model is not None}
        for waiting in kept_waiting(self._keep, event_log):
            beside = (waiting.variants_in(layout), waiting.certificate_in(layout))
            needed |= {waiting.model, *(str(folder) for folder in beside if folder is not None)}
        return needed | _last_passed(self.drift, event_log)

    def _forget_runs(self, records: ArtifactRecords, kept: Set[str]) -> None:
        """Deletes what the metadata has of runs that are not there any more."""
        events = self.event_log.events(EventKind.STARTED)
        own = {event.run for event in events if event.run is not None}
        executions, artifacts = find_forgettable(records, self.layout.name, own, kept)
        if executions or artifacts:
            forget(self.metadata, self.layout, executions, artifacts)


def _asked_for(schedule: ScheduleSettings | None, event_log: EventLog) -> Set[str]:
    """Returns the keys of `schedule.keep` that the config sets itself; all, once it was said
    what goes.
    """
    if schedule is None or event_log.last(EventKind.TO_DELETE) is not None:
        return KEYS
    return schedule.keep.model_fields_set


def _announce(keep: KeepSettings, expired: Expired, event_log: EventLog) -> list[str]:
    """Says what goes by default, before it does."""
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
    """Returns the uri of the examples that the next span's drift is measured from, however old
    they are.
    """
    if not drift.columns:
        return set()
    records = SpanRecords(event_log)
    number = records.compared_with(sys.maxsize, drift.on_drift)
    reading = None if number is None else records.reading(number)
    return set() if reading is None else {reading.details["uri"]}


@dataclass
class Deleted:
    """What a deletion has come to so far: paths with their sizes."""

    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path, the lineage of each with its `bytes`."""
    runs: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    """Of what is none of these, such as the working files of executions."""

    def record(self, event_log: EventLog) -> list[str]:
        """Writes down what is gone, which may be less where a deletion failed.

        Returns:
          What was deleted, as a sentence for people; none if nothing was.
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
    """Such as `1 version deleted (17), 2 runs and 24 artifacts deleted, 9.1 MB`."""
    parts = []
    if versions:
        names = ", ".join(map(str, versions))
        parts.append(f"{counted(len(versions), 'version')} deleted ({names})")
    if runs or artifacts:
        parts.append(f"{counted(runs, 'run')} and {counted(artifacts, 'artifact')} deleted")
    return f"{', '.join(parts)}, {freed / 1e6:.1f} MB"


@dataclass(frozen=True)
class Expired:
    """What is to go, and what is not."""

    versions: tuple[Version, ...] = ()
    runs: tuple[str, ...] = ()
    kept_runs: frozenset[str] = frozenset()
    deletes_runs: bool = False
    """False where all runs are kept, whatever `kept_runs` says."""

    def only(self, keys: Set[str]) -> Expired:
        """Returns the part that some keys of `schedule.keep` are about."""
        chosen = self if "versions" in keys else replace(self, versions=())
        return chosen if "runs" in keys else replace(chosen, runs=(), deletes_runs=False)

    def __bool__(self) -> bool:
        """Returns whether anything is to go."""
        return bool(self.versions or self.runs)

    def __str__(self) -> str:
        """Such as `version 1795277082 and 3 runs, the oldest 2026-01-05T03-00-00.123456`."""
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
    """Finds what is no longer kept; without a schedule, everything is.

    Args:
      schedule: of the pipeline.
      layout: of the pipeline.
      event_log: of the pipeline.
      coming_runs: how many runs there will be besides those that are there.
      coming_versions: the same of versions.
    """
    if schedule is None:
        return Expired()
    keep = schedule.keep
    versions: list[Version] = []
    # A store has rules of its own for what is to be deleted.
    if keep.versions != ALL and not is_remote(layout.serving):
        catalog = read_catalog(layout, event_log)
        versions = _expired_versions(catalog, keep.versions - coming_versions)
    if keep.runs == ALL or layout.remote is not None:
        return Expired(tuple(versions))
    recorded = _recorded_runs(event_log)
    runs = _runs(layout, recorded)
    kept = {*runs[max(0, len(runs) + coming_runs - keep.runs) :], *_last_finished(event_log)}
    if not coming_runs:
        # Whatever the clock said: where the last run's log is has just been told.
        kept |= set(recorded[-1:])
    old = tuple(run for run in runs if run not in kept)
    return Expired(tuple(versions), old, frozenset(kept), deletes_runs=True)


def lineage_of(version: Version) -> dict[str, Any]:
    """What is worth knowing of a version that is no longer there."""
    return {
        "version": version.number,
        "model": version.model,
        "run": version.provenance.run,
        "window": version.details.get("window", []),
        "withdrawn": version.withdrawn,
        "reason": version.reason,
    }


def _expired_versions(catalog: Sequence[Version], keep: int) -> list[Version]:
    """All of ours but the newest good models, what serves, and what was withdrawn lately.

    Where more than one is kept, the newest that is whole and of another model than the one that
    serves is among them: that is the way back.

    A version that was withdrawn is none to go back to, so it does not count as one. It stays to be
    looked into until as many versions are newer as are kept.
    """
    ours = [version for version in catalog if version.is_ours]
    # A copy that a rollback made counts as what it is a copy of.
    good = list(dict.fromkeys(v.identity for v in ours if not v.withdrawn))
    kept = {*good[: max(keep, 0)], *(v.identity for v in catalog[:1])}
    lately = {version.number for version in ours[: max(keep, 0)] if version.withdrawn}
    old = [v for v in ours if v.identity not in kept and v.number not in lately]
    if old and (serving := find_serving(catalog)) is not None:  # That reads files.
        kept.add(serving.identity)
        back = find_serving([v for v in catalog if v.identity != serving.identity])
        if back is not None and keep > 1:
            kept.add(back.identity)
    old = [version for version in old if version.identity not in kept]
    return sorted(old, key=lambda version: version.number)


def _recorded_runs(event_log: EventLog) -> list[str]:
    """Returns the ids of the runs that the event log knows, in the order in which they began."""
    # One that was refused before its first component has an end alone.
    events = event_log.events(EventKind.STARTED, EventKind.FINISHED, EventKind.FAILED)
    return list(dict.fromkeys(event.run for event in events if event.run is not None))


def _runs(layout: Layout, recorded: Sequence[str]) -> list[str]:
    """Returns the ids of the runs that are there, the oldest first, though the clock was set back
    since.

    Args:
      layout: of the pipeline.
      recorded: the runs that the event log knows, oldest first. Others, such as those of before a
        new ledger was begun, have their place among these by their folders' times.
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
    """Returns the last run that trained on a window, or found it trained on already.

    What it used is what the next one goes on from, though newer runs may have failed early.
    """
    runs = [event.run for event in trainings(event_log) if event.run is not None]
    return set(runs[-1:])
