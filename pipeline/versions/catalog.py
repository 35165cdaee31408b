"""Reads the catalog of pushed versions from their folders and the event log, without TFX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.versions import (
    Provenance,
    find_damage,
    find_variant_damage,
    list_versions,
    read_provenance,
    read_withdrawal,
)
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent
from trainer_module.errors import ConfigError


@dataclass(frozen=True)
class Version:
    """A pushed version of a model."""

    number: int
    path: str
    """The folder of the version, or its URI."""
    provenance: Provenance
    is_ours: bool
    """Whether this pipeline pushed the version; others may push to the same folder."""
    details: dict[str, Any]
    """The details of the PUSHED event; for a copy, the details of the original version."""
    withdrawn: bool
    """Whether the event log or a mark in the version's folder records a withdrawal."""
    is_withdrawal_recorded: bool
    """Whether the event log records the withdrawal. After an interrupted command, only the folder
    may have the mark.
    """
    reason: str | None
    """The reason of the withdrawal."""
    withdrawal: str
    """The command and the time of the withdrawal, or an empty string if the event log does not have
    them.
    """
    is_recorded: bool
    """False if the version is the copy of a rollback that was interrupted before its record."""

    @property
    def origin(self) -> int:
        """The version as which this model was first pushed: for a copy, the original version."""
        copy_of = self.provenance.copy_of
        return self.number if copy_of is None else copy_of

    @cached_property
    def damage(self) -> str:
        """The damage of the model's files, or an empty string if there is no damage.

        All files are read. The files of a remote version are not checked.
        """
        return "" if is_remote(self.path) else find_damage(Path(self.path))

    @cached_property
    def variant_damage(self) -> str:
        """The damage of the variants, which only servers with --variant use."""
        return "" if is_remote(self.path) else find_variant_damage(Path(self.path))

    @property
    def model(self) -> str | None:
        """The URI of the Model artifact."""
        return self.provenance.model

    @property
    def identity(self) -> tuple[object, ...]:
        """A key that is equal for versions of the same model.

        If the model is unknown, the key is equal for a version and its copies.
        """
        if self.model is None:
            return (self.origin,)
        return (self.model, self.provenance.model_created)


def read_catalog(layout: Layout, event_log: EventLog) -> list[Version]:
    """Returns the existing versions, newest first.

    A remote serving folder is not read: the event log lists its versions.

    Raises:
      ConfigError: the event log cannot be used.
    """
    pushed = {int(event.details["version"]): event for event in event_log.events(EventKind.PUSHED)}
    if is_remote(layout.serving):
        folders = {number: event.details["path"] for number, event in pushed.items()}
    else:
        folders = {int(path.name): str(path) for path in list_versions(Path(layout.serving))}
    copies = {e.details["version"] for e in event_log.events(EventKind.ROLLED_BACK)}
    withdrawals = _withdrawals(event_log)
    catalog = []
    for number in sorted(folders, reverse=True):
        folder = Path(folders[number])
        provenance = read_provenance(folder) or _provenance(pushed.get(number))
        origin = pushed.get(number if provenance.copy_of is None else provenance.copy_of)
        mark, recorded = read_withdrawal(folder), withdrawals.get(number)
        # By now the number may belong to another model, if somebody has copied a folder by hand.
        is_recorded = recorded is not None and (
            provenance.model is None or recorded["model"] in (None, provenance.model)
        )
        catalog.append(
            Version(
                number=number,
                path=folders[number],
                provenance=provenance,
                is_ours=number in pushed or number in copies or _has_own_model(provenance, layout),
                details=origin.details if origin else {},
                withdrawn=mark is not None or is_recorded,
                is_withdrawal_recorded=is_recorded,
                reason=(recorded["reason"] if recorded and is_recorded else mark) or None,
                withdrawal=str(recorded["withdrawal"]) if recorded and is_recorded else "",
                is_recorded=provenance.copy_of is None or number in copies,
            )
        )
    return catalog


def find_serving(catalog: Sequence[Version]) -> Version | None:
    """Returns the version that Scopeline's servers would load now, or None.

    This is the newest version that is undamaged and not withdrawn. A remote folder is not read:
    there, it is the version with the highest number.

    Args:
      catalog: the versions, newest first; the files of versions are read until one is undamaged.
    """
    for version in catalog:
        if is_remote(version.path) or not (version.withdrawn or version.damage):
            return version
    return None


def describe_servers(layout: Layout) -> str:
    """Returns a hint on how to find out whether servers have loaded a new version."""
    return (
        f"servers of {layout.serving} load this version within seconds; their /v1/models/"
        f"{layout.name} shows the loaded version"
    )


def _has_own_model(provenance: Provenance, layout: Layout) -> bool:
    """Returns whether a version's model is one of the pipeline's artifacts.

    The event log may lack the push of such a version: the run was killed after the push, or the
    event log was deleted later.
    """
    return provenance.model is not None and provenance.model.startswith(f"{layout.artifacts}/")


def find_version(catalog: list[Version], number: int, option: str) -> Version:
    """Returns the version with a number.

    Args:
      option: the option that gave the number, for the message.

    Raises:
      ConfigError: there is no such version.
    """
    for version in catalog:
        if version.number == number:
            return version
    raise ConfigError(
        f"{option} {number}: this version does not exist; {describe_versions(catalog)}"
    )


def describe_versions(catalog: list[Version]) -> str:
    """Returns a list of the versions, for a message."""
    if not catalog:
        return "no version has been pushed yet"
    names = ", ".join(f"{v.number}{' (withdrawn)' if v.withdrawn else ''}" for v in catalog)
    return f"there are {names}" if len(catalog) > 1 else f"there is {names}"


def _withdrawals(event_log: EventLog) -> dict[int, dict[str, str | None]]:
    """Returns the withdrawals that are in force, by the version's number.

    A withdrawal ends with a rollback to the version, or with the deletion of the version.
    """
    withdrawals: dict[int, dict[str, str | None]] = {}
    for event in event_log.events(EventKind.WITHDRAWN, EventKind.ROLLED_BACK, EventKind.DELETED):
        details = event.details
        if event.kind is EventKind.WITHDRAWN:
            command = f"by `{details['command']}` " if "command" in details else ""
            withdrawals[details["version"]] = {
                "reason": details.get("reason"),
                "model": details.get("model"),
                "withdrawal": f"{command}on {event.at.astimezone():%Y-%m-%d %H:%M}",
            }
        else:
            for number in details.get("reinstated", details.get("versions", [])):
                withdrawals.pop(number, None)
    return withdrawals


def _provenance(event: LoggedEvent | None) -> Provenance:
    """Returns the provenance of a version from its PUSHED event, or an empty provenance."""
    if event is None:
        return Provenance(model=None)
    at = event.at.isoformat(timespec="milliseconds")
    return Provenance(model=event.details.get("model"), run=event.run, pushed_at=at)


def pushed_at(version: Version) -> datetime:
    """Returns the time of the push; for a folder without a provenance, its modification time."""
    if version.provenance.pushed_at:
        return datetime.fromisoformat(version.provenance.pushed_at)
    return datetime.fromtimestamp(Path(version.path).stat().st_mtime).astimezone()
