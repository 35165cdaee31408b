"""Deletes old versions, and old runs with their artifacts, as `schedule.keep` says."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
from collections.abc import Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from components.disk import write_whole
from components.example_gen.paths import is_remote
from components.pusher.versions import delete_abandoned, delete_whole, now
from pipeline.config.sections.schedule import DriftSettings, KeepSettings, ScheduleSettings
from pipeline.layout import Layout
from pipeline.lock import one_at_a_time
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata.store import check_store, connection_config, forget
from pipeline.records.span_records import SpanRecords
from pipeline.versions.artifacts import (
    ArtifactRecords,
    delete_files,
    find_forgettable,
    retire_artifacts,
    size_of,
)
from pipeline.versions.catalog import read_catalog
from pipeline.versions.expiry import Expired, find_expired, lineage_of
from pipeline.versions.waiting import kept_waiting
from pipeline.versions.withdrawal import complete_marks
from trainer_module.errors import ScopelineError, TryLaterError, counted

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

    Killed at whatever moment, the next call goes on, and tells also what the one before deleted.
    A config that says nothing of `keep` deletes nothing before it has been said once what goes.
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
        """The same at the end of a run; what cannot be deleted, the next run deletes.

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

    def finish_deletion(self) -> list[str]:
        """Finishes a deletion that was killed, for a look that starts no run.

        Returns:
          What was deleted, or why it cannot be, in sentences for people; empty where there is
          nothing to finish.
        """
        if not self.layout.deletion.exists():
            return []
        try:
            with one_at_a_time(self.layout):
                check_store(self.metadata, self.layout)
                return self.apply()
        except TryLaterError:
            return []  # A run is under way, and does so at its end.
        except Exception as error:  # ML Metadata has errors of its own, such as of a locked file.
            if not isinstance(error, ScopelineError | OSError | sqlite3.Error):
                logger.debug("A deletion could not be finished", exc_info=True)
            why = str(error).partition("\n")[0]
            return [f"what a deletion that was killed has left cannot be deleted: {why}"]

    @property
    def _keep(self) -> KeepSettings:
        return (self.schedule or ScheduleSettings()).keep

    def _apply(self) -> tuple[list[str], list[str]]:
        """Returns what will be deleted, and what was."""
        layout, event_log = self.layout, self.event_log
        expired = find_expired(self.schedule, layout, event_log)
        asked = _asked_for(self.schedule, event_log)
        announced = _announce(self._keep, expired.only(KEYS - asked), event_log)
        expired = expired.only(asked)
        deletion = Deletion.begin(layout, event_log)
        delete_abandoned(layout.run("").root)
        if not is_remote(layout.serving):
            delete_abandoned(Path(layout.serving))
        _delete_versions(expired, deletion)
        for line in complete_marks(layout, event_log):
            logger.warning("%s", line)
        if expired.deletes_runs:
            self._delete_runs(expired, deletion)
        return announced, deletion.end(event_log)

    def _delete_runs(self, expired: Expired, deletion: Deletion) -> None:
        """Deletes runs, what only those have used, and what the metadata has of them."""
        layout = self.layout
        deletion.runs |= {
            str(root): size_of(root) for root in (layout.run(run).root for run in expired.runs)
        }
        deletion.save()
        records = None
        if self.metadata is not None or layout.metadata.exists():
            connection = connection_config(self.metadata, layout)
            records = retire_artifacts(layout, connection, expired.kept_runs, self._needed())
            deletion.artifacts |= {
                uri: size_of(Path(uri)) for uri in records.retired_uris if Path(uri).exists()
            }
            deletion.save()
            deletion.bytes += delete_files(layout, records)
        for run in expired.runs:
            delete_whole(layout.run(run).root)
        if records is not None:
            # Last: a store that is busy or full may refuse it; the next deletion makes up for it.
            self._forget_runs(records, expired.kept_runs)

    def _needed(self) -> set[str]:
        """The uris of artifacts that are needed, whatever runs they are of."""
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
    """The keys of `schedule.keep` that the config sets itself; all, once it was said what goes."""
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


def _delete_versions(expired: Expired, deletion: Deletion) -> None:
    paths = {version.number: Path(version.path) for version in expired.versions}
    for version in expired.versions:
        deletion.versions[version.path] = lineage_of(version) | {
            "bytes": size_of(paths[version.number])
        }
    deletion.save()
    for path in paths.values():
        delete_whole(path)


def _last_passed(drift: DriftSettings, event_log: EventLog) -> set[str]:
    """The uri of the examples that the next span's drift is measured from, however old they are."""
    if not drift.columns:
        return set()
    records = SpanRecords(event_log)
    number = records.compared_with(sys.maxsize, drift.on_drift)
    reading = None if number is None else records.reading(number)
    return set() if reading is None else {reading.details["uri"]}


@dataclass
class Deletion:
    """What goes: paths with their sizes."""

    file: Path
    began: str
    """Names the deletion."""
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path, the lineage of each with its `bytes`."""
    runs: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    """Of what is none of these, such as the working files of executions."""

    @classmethod
    def begin(cls, layout: Layout, event_log: EventLog) -> Deletion:
        """A new deletion, or the one that was killed."""
        try:
            found = cls(layout.deletion, **json.loads(layout.deletion.read_text()))
        except (OSError, ValueError, TypeError):
            return cls(layout.deletion, now())
        # It may have been killed after it was told.
        last = event_log.last(EventKind.DELETED)
        told = last is not None and last.details.get("began") == found.began
        return cls(layout.deletion, now()) if told else found

    def save(self) -> None:
        """Writes down what goes before it does; a full disk keeps nothing from being deleted."""
        content = asdict(self)
        del content["file"]
        if not (self.versions or self.runs or self.artifacts):
            return
        try:
            write_whole(self.file, json.dumps(content))
        except OSError:
            logger.exception("What is being deleted could not be written down")

    def end(self, event_log: EventLog) -> list[str]:
        """Records what is gone, and is over.

        Returns:
          What was deleted, as a sentence for people; none if nothing was.
        """
        # What a config keeps by now, after the deletion was killed, is still there.
        versions = [found for path, found in self.versions.items() if not Path(path).exists()]
        runs = {path: size for path, size in self.runs.items() if not Path(path).exists()}
        artifacts = {uri: size for uri, size in self.artifacts.items() if not Path(uri).exists()}
        lines = []
        if versions or runs or artifacts:
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
                began=self.began,
            )
            lines.append(message)
        self.file.unlink(missing_ok=True)
        return lines


def _describe(versions: list[int], runs: int, artifacts: int, freed: int) -> str:
    """Such as `1 version deleted (17), 2 runs and 24 artifacts deleted, 9.1 MB`."""
    parts = []
    if versions:
        names = ", ".join(map(str, versions))
        parts.append(f"{counted(len(versions), 'version')} deleted ({names})")
    if runs or artifacts:
        parts.append(f"{counted(runs, 'run')} and {counted(artifacts, 'artifact')} deleted")
    return f"{', '.join(parts)}, {freed / 1e6:.1f} MB"
