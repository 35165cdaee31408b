"""The pushed versions, from what their folders and the event log say; nothing here needs TFX."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.versions import Provenance, list_versions, read_provenance
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from trainer_module.errors import ConfigError


@dataclass(frozen=True)
class Version:
    """One pushed version."""

    number: int
    path: str
    """Its folder, or URI."""
    provenance: Provenance
    serves: bool
    """Whether a server that watches the folder loads it: it has the highest number."""
    is_ours: bool
    """Whether this pipeline pushed it: others may push to the same folder, or people put
    numbers there."""
    details: dict[str, Any]
    """Of the PUSHED event; of a copy, those of the version that it is a copy of."""
    withdrawn: bool
    reason: str | None
    """Why it was withdrawn."""
    is_recorded: bool
    """False for the copy of a rollback that was killed before it was written down."""

    @property
    def origin(self) -> int:
        """The version that was pushed first with this model: of a copy, what it is a copy of."""
        copy_of = self.provenance.copy_of
        return self.number if copy_of is None else copy_of

    @property
    def model(self) -> str | None:
        """The uri of the Model artifact."""
        return self.provenance.model

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for versions of the same model; one whose model is unknown is like its copies."""
        if self.model is None:
            return (self.origin,)
        return (self.model, self.provenance.model_created)


def read_catalog(layout: Layout, event_log: EventLog) -> list[Version]:
    """The versions that are there, newest first.

    A remote serving folder is not looked at: its versions are those of the event log.

    Raises:
      ConfigError: the event log cannot be used.
    """
    pushed = {int(event.details["version"]): event for event in event_log.events(EventKind.PUSHED)}
    if is_remote(layout.serving):
        folders = {number: event.details["path"] for number, event in pushed.items()}
    else:
        folders = {int(path.name): str(path) for path in list_versions(Path(layout.serving))}
    copies = {e.details["version"] for e in event_log.events(EventKind.ROLLED_BACK)}
    reasons = _withdrawn(event_log)
    catalog = []
    for number in sorted(folders, reverse=True):
        provenance = read_provenance(Path(folders[number])) or _provenance(pushed.get(number))
        origin = pushed.get(number if provenance.copy_of is None else provenance.copy_of)
        catalog.append(
            Version(
                number=number,
                path=folders[number],
                provenance=provenance,
                serves=number == max(folders),
                is_ours=number in pushed or number in copies or _is_made_here(provenance, layout),
                details=origin.details if origin else {},
                withdrawn=number in reasons,
                reason=reasons.get(number),
                is_recorded=provenance.copy_of is None or number in copies,
            )
        )
    return catalog


def _is_made_here(provenance: Provenance, layout: Layout) -> bool:
    """Whether a version's model is one of the pipeline's artifacts.

    It may have been pushed by a run that was killed, or before the ledger was begun anew.
    """
    return provenance.model is not None and provenance.model.startswith(f"{layout.artifacts}/")


def find_version(catalog: list[Version], number: int, option: str) -> Version:
    """The version of a number.

    Args:
      catalog: all versions.
      number: of the version.
      option: what gave the number, for the message.

    Raises:
      ConfigError: there is none.
    """
    for version in catalog:
        if version.number == number:
            return version
    raise ConfigError(f"{option} {number}: there is no such version; {listed(catalog)}")


def listed(catalog: list[Version]) -> str:
    """The versions, for a message."""
    if not catalog:
        return "none has been pushed yet"
    names = ", ".join(f"{v.number}{' (withdrawn)' if v.withdrawn else ''}" for v in catalog)
    return f"there is {names}"


def _withdrawn(event_log: EventLog) -> dict[int, str | None]:
    """The reasons, by version; a rollback to a version that was withdrawn lifts the mark."""
    reasons: dict[int, str | None] = {}
    for event in event_log.events(EventKind.WITHDRAWN, EventKind.ROLLED_BACK):
        if event.kind is EventKind.WITHDRAWN:
            reasons[event.details["version"]] = event.details.get("reason")
        else:
            for number in event.details.get("reinstated", []):
                reasons.pop(number, None)
    return reasons


def _provenance(event: LoggedEvent | None) -> Provenance:
    """What the event log knows of a version."""
    if event is None:
        return Provenance(model=None)
    at = event.at.isoformat(timespec="milliseconds")
    return Provenance(model=event.details.get("model"), run=event.run, pushed_at=at)


def pushed_at(version: Version) -> datetime:
    """When it was pushed; a folder that says nothing was made when it was last changed."""
    if version.provenance.pushed_at:
        return datetime.fromisoformat(version.provenance.pushed_at)
    return datetime.fromtimestamp(Path(version.path).stat().st_mtime).astimezone()
