"""Blessed models that were not pushed, because of a hold or because they need an approval."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.certificate import CERTIFICATE_FOLDER
from components.pusher.variants import has_variants
from components.pusher.versions import (
    BLESSED_MODEL_PROPERTY,
    CARD_FOLDER,
    WAITING_PROPERTY,
    Provenance,
    find_damage,
    now,
    push_new_version,
)
from pipeline.config.sections.notify import Occasion
from pipeline.config.sections.push import Approve
from pipeline.config.sections.schedule import ALL, KeepSettings
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.lock import run_lock
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata_store import check_store
from pipeline.records.notify import check_secrets, notify, wait_for_deliveries
from pipeline.records.summary import Candidate, Status, WaitingSummary
from pipeline.versions.artifacts import find_models
from pipeline.versions.catalog import Version, read_catalog
from pipeline.versions.hold import Hold, pushing, read_hold
from trainer_module.errors import ConfigError
from trainer_module.typed_words import typed_command


@dataclass(frozen=True, kw_only=True)
class Waiting(Candidate):
    """A blessed model that waits for a push."""

    number: int
    """The number for `approve`; after the push, the version has another number."""
    since: datetime
    run: str | None
    details: dict[str, Any]
    """The details of the WAITS event: the details of a PUSHED event, and of the artifact."""
    is_superseded: bool
    """Whether the model of a run that began later has been pushed since."""

    def exported_in(self, layout: Layout) -> Path:
        """Returns the folder to push, even if the output is mounted at another path."""
        return layout.root / self.exported

    def certificate_in(self, layout: Layout) -> Path | None:
        """Returns the folder of the model's InfraBlessing, or None."""
        return layout.root / self.certificate if self.certificate else None

    def card_in(self, layout: Layout) -> Path | None:
        """Returns the folder of the card by the run since which the model waits; the folder may not
        exist.
        """
        return self.exported_in(layout).parent / CARD_FOLDER / self.run if self.run else None

    def variants_in(self, layout: Layout) -> Path | None:
        """Returns the folder of the artifact of the model's variants, or None."""
        return None if self.variants is None else layout.root / self.variants

    def has_files(self, layout: Layout) -> bool:
        """Returns whether the model's files exist; a remote model is not checked."""
        return is_remote(self.model) or self.exported_in(layout).is_dir()

    def damage(self, layout: Layout) -> str:
        """Returns the damage of the model's files, or an empty string if there is no damage.

        All files are read. The files of a remote model are not checked.
        """
        if is_remote(self.model):
            return ""
        folder = self.certificate_in(layout)
        return find_damage(self.exported_in(layout), folder and folder / CERTIFICATE_FOLDER)


def read_waiting(event_log: EventLog) -> list[Waiting]:
    """Returns all models that were not pushed, newest first, including superseded models."""
    events, begun = event_log.events(EventKind.WAITS, EventKind.PUSHED), _start_ids(event_log)
    # A model is as old as its run, whenever it was approved.
    waits = [event for event in events if event.kind is EventKind.WAITS]
    ages = {event.details["version"]: begun.get(event.run, event.id) for event in waits}
    pushed = [event for event in events if event.kind is EventKind.PUSHED]
    approved = {event.details["waited"] for event in pushed if "waited" in event.details}
    newest = max(
        (ages.get(e.details.get("waited"), begun.get(e.run, e.id)) for e in pushed), default=0
    )
    return [
        Waiting(
            number=event.details["version"],
            since=event.at,
            run=event.run,
            details=event.details,
            is_superseded=event.details.get("superseded", False)
            or ages[event.details["version"]] < newest,
            **{f.name: event.details[f.name] for f in fields(Candidate) if f.name in event.details},
        )
        for event in reversed(waits)
        if event.details["version"] not in approved
    ]


def still_waiting(event_log: EventLog) -> list[Waiting]:
    """Returns the waiting models that no later model has superseded, newest first."""
    return [waiting for waiting in read_waiting(event_log) if not waiting.is_superseded]


def retained_waiting(keep: KeepSettings, event_log: EventLog) -> list[Waiting]:
    """Returns the waiting models that retention keeps: the newest `keep.versions`, newest first."""
    return still_waiting(event_log)[: None if keep.versions == ALL else keep.versions]


def _start_ids(event_log: EventLog) -> dict[str | None, int]:
    """Returns the ids of the events with which runs began, by run; later runs have higher ids.

    A run lists its data at its start. If the run uses a cached model, is resumed, or is retried a
    day later, the age of its data does not change.
    """
    return {event.run: event.id for event in event_log.events(EventKind.STARTED)}


def began_later(event_log: EventLog, version: Version, run: str) -> bool:
    """Returns whether a version's run began after another run; False if the start is unknown.

    The copy of a rollback belongs to the run of its original.
    """
    runs = {int(e.details["version"]): e.run for e in event_log.events(EventKind.PUSHED)}
    begun, of_version = _start_ids(event_log), version.provenance.run or runs.get(version.origin)
    return run in begun and begun.get(of_version, 0) > begun[run]


def find_obstacle(
    approve: Approve, layout: Layout, event_log: EventLog, candidate: Candidate, run: str
) -> WaitingSummary | None:
    """Returns the reason why a blessed model is not pushed, or None if nothing prevents the push.

    Args:
      approve: the value of `push.approve`.
      run: the id of the run that would push it.

    Raises:
      ConfigError: the file of a hold cannot be read.
    """
    catalog = read_catalog(layout, event_log)
    variants = None if candidate.variants is None else layout.root / candidate.variants
    if catalog and serves_all(catalog[0], candidate, variants):
        return None  # The Pusher finds that this model is in service already.
    hold = read_hold(layout)
    is_late = bool(catalog) and began_later(event_log, catalog[0], run)
    if hold is None and approve is not Approve.MANUAL and not is_late:
        return None
    earlier = [model for model in still_waiting(event_log) if _is_same_model(model, candidate)]
    number = (
        earlier[0].number
        if earlier and not is_late
        else _free_number(catalog, read_waiting(event_log))
    )
    status = Status.WAITS if hold is None else Status.HELD
    reason = how_to_push(number, hold)
    if is_late:
        status = Status.SUPERSEDED
        reason = (
            f"version {catalog[0].number} is in service, and its run began later; "
            f"`{typed_command(f'approve {number} --force --reason TEXT')}` pushes this model anyway"
        )
    return WaitingSummary(version=number, status=status, reason=reason, **asdict(candidate))


def how_to_push(number: int, hold: Hold | None) -> str:
    """Returns the command that pushes a waiting model, and the hold that is in force."""
    push = f"`{typed_command(f'approve {number} --reason TEXT')}` pushes the model"
    if hold is None:
        return push
    return f"held back ({hold.reason}); after `{typed_command('release')}`, {push}"


def _is_same_model(waiting: Waiting, candidate: Candidate) -> bool:
    return (waiting.model, waiting.model_created) == (candidate.model, candidate.model_created)


def serves_model(version: Version, model: Candidate) -> bool:
    """Returns whether a version contains a model; for remote folders, only URIs are compared."""
    created = version.provenance.model_created
    return version.model == model.model and created in (None, model.model_created)


def serves_all(version: Version, model: Candidate, variants: Path | None) -> bool:
    """Returns whether a version is undamaged, and contains a model with its variants.

    For a remote version, only the model is compared.

    Args:
      variants: the folder of the artifact of the model's variants, or None.
    """
    if not serves_model(version, model):
        return False
    if is_remote(version.path):
        return True
    return has_variants(Path(version.path), variants) and not (
        version.damage or version.variant_damage
    )


def _free_number(catalog: Iterable[Version], waiting: Iterable[Waiting]) -> int:
    """Returns a number higher than all others, as for a version that is pushed now."""
    numbers = [*(version.number for version in catalog), *(model.number for model in waiting)]
    return max(int(time.time()), max(numbers, default=0) + 1)


def mark_blessing(connection: Any, model: Candidate, waits: bool) -> None:
    """Sets or lifts the mark of a waiting model, which is not the baseline of the next run.

    Args:
      model: the model; if the store lacks the model, nothing is marked.
      waits: whether to set the mark.
    """
    import ml_metadata as mlmd

    store = mlmd.MetadataStore(connection)
    models = {artifact.id for artifact in find_models(store, model.model, model.model_created)}
    changed = []
    for blessing in store.get_artifacts_by_type("ModelBlessing") if models else ():
        values = {name: value.int_value for name, value in blessing.custom_properties.items()}
        if (
            values.get(BLESSED_MODEL_PROPERTY) in models
            and bool(values.get(WAITING_PROPERTY)) != waits
        ):
            blessing.custom_properties[WAITING_PROPERTY].int_value = int(waits)
            changed.append(blessing)
    if changed:
        store.put_artifacts(changed)


@dataclass(frozen=True)
class ApprovalRequest:
    """The options of an approval."""

    number: int
    reason: str
    force: bool = False
    """Whether to push even if a model that was trained later is in service."""


def approve(
    config: PipelineConfig, layout: Layout, event_log: EventLog, request: ApprovalRequest
) -> list[str]:
    """Pushes a model that waits, atomically and with its provenance, like the Pusher.

    After an interruption, the same command completes the push.

    Returns:
      Lines about what was done.

    Raises:
      ConfigError: no such model waits, pushes are held, a later model has been pushed, the model's
        files are gone or damaged, the serving folder is remote or cannot be written, the metadata
        cannot be used, or a secret that the notification needs is not set.
      DataError: a file was damaged while it was copied.
      TryLaterError: a run is in progress, or the metadata is busy or unreachable.
    """
    check_secrets(config.notify, Occasion.PUSHED)
    _find(event_log, request.number)
    with run_lock(layout), pushing(layout):
        waiting = _find(event_log, request.number)
        connection = check_store(config.metadata, layout)
        catalog = read_catalog(layout, event_log)
        provenance = Provenance(
            waiting.model, waiting.model_id, waiting.model_created, waiting.run, now()
        )
        # An approval that was killed after its push has left the version without an event.
        if not (catalog and serves_all(catalog[0], waiting, waiting.variants_in(layout))):
            _check(layout, waiting, catalog, request)
            try:
                folder = waiting.certificate_in(layout)
                version = push_new_version(
                    waiting.exported_in(layout),
                    Path(layout.serving),
                    provenance,
                    waiting.variants_in(layout),
                    folder / CERTIFICATE_FOLDER if folder else None,
                    waiting.card_in(layout),
                )
            except OSError as error:
                raise ConfigError(
                    f"{layout.serving}: version {waiting.number} cannot be copied "
                    f"({error.strerror or error}); the version in service has not changed; fix the "
                    "cause, and repeat the command"
                ) from None
        else:
            version = Path(catalog[0].path)
        if connection is not None:  # Without metadata there is no mark to lift.
            mark_blessing(connection, waiting, waits=False)
        lines = [_record(config, event_log, waiting, version, request.reason)]
    wait_for_deliveries()
    return lines


def _find(event_log: EventLog, number: int) -> Waiting:
    models = read_waiting(event_log)
    for waiting in models:
        if waiting.number == number:
            return waiting
    names = ", ".join(str(waiting.number) for waiting in models if not waiting.is_superseded)
    raise ConfigError(
        f"approve {number}: no model waits"
        + (f" under this number; the models that wait are {names}" if names else "")
    )


def _check(
    layout: Layout, waiting: Waiting, catalog: list[Version], request: ApprovalRequest
) -> None:
    """Raises ConfigError if a model cannot or should not be pushed."""
    prefix = f"approve {waiting.number}"
    if (hold := read_hold(layout)) is not None:
        raise ConfigError(
            f"{prefix}: {hold}; end the hold first, with `{typed_command('release')}`"
        )
    if is_remote(layout.serving) or is_remote(waiting.model):
        raise ConfigError(
            f"{prefix}: {layout.serving} or {waiting.model} is not a folder of this machine, and "
            "an approval renames folders; a run without push.approve pushes the model"
        )
    if waiting.is_superseded and not request.force:
        raise ConfigError(
            f"{prefix}: version {catalog[0].number if catalog else '?'} is of a model that was "
            "trained later; --force replaces that version with this model"
        )
    if not waiting.has_files(layout):
        raise ConfigError(
            f"{prefix}: {waiting.exported_in(layout)} no longer exists: retention keeps at most "
            "`schedule.keep.versions` models that wait, and none after a later model was pushed; "
            "train again"
        )
    if damage := waiting.damage(layout):
        raise ConfigError(f"{prefix}: the model is damaged: {damage}; train again")


def _record(
    config: PipelineConfig, event_log: EventLog, waiting: Waiting, version: Path, reason: str
) -> str:
    """Records an approval whose version is in the serving folder; returns a sentence about it."""
    message = (
        f"the waiting model {waiting.number} is now version {version.name}, in service: {reason}"
    )
    number = int(version.name)
    event_log.record(
        EventKind.APPROVED,
        message,
        run=waiting.run,
        version=number,
        waited=waiting.number,
        reason=reason,
    )
    model_details = {
        key: waiting.details.get(key) for key in ("metrics", "window", "strategy", "model_kind")
    }
    event_log.record(
        EventKind.PUSHED,
        f"to {version}",
        run=waiting.run,
        version=version.name,
        path=str(version),
        model=waiting.model,
        waited=waiting.number,
        **model_details,
    )
    details = {"metrics": model_details["metrics"], "reason": reason}
    notify(
        config.notify, config.name, Occasion.PUSHED, message, details, event_log, run=waiting.run
    )
    return message
