"""What `schedule.keep` no longer keeps; nothing here deletes."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.versions import OUTGOING_PREFIX
from pipeline.config.sections.schedule import ALL, ScheduleSettings
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.span_records import trainings
from pipeline.versions.catalog import Version, find_serving, read_catalog
from trainer_module.errors import counted


@dataclass(frozen=True)
class Expired:
    """What is to go, and what is not."""

    versions: tuple[Version, ...] = ()
    runs: tuple[str, ...] = ()
    kept_runs: frozenset[str] = frozenset()
    deletes_runs: bool = False
    """False where all runs are kept, whatever `kept_runs` says."""

    def only(self, keys: Set[str]) -> Expired:
        """The part that some keys of `schedule.keep` are about."""
        chosen = self if "versions" in keys else replace(self, versions=())
        return chosen if "runs" in keys else replace(chosen, runs=(), deletes_runs=False)

    def __bool__(self) -> bool:
        """Whether anything is to go."""
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
    """The ids of the runs that the event log knows, in the order in which they began."""
    # One that was refused before its first component has an end alone.
    events = event_log.events(EventKind.STARTED, EventKind.FINISHED, EventKind.FAILED)
    return list(dict.fromkeys(event.run for event in events if event.run is not None))


def _runs(layout: Layout, recorded: Sequence[str]) -> list[str]:
    """The ids of the runs that are there, the oldest first, though the clock was set back since.

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
    """The last run that trained on a window, or found it trained on already.

    What it used is what the next one goes on from, though newer runs may have failed early.
    """
    runs = [event.run for event in trainings(event_log) if event.run is not None]
    return set(runs[-1:])
