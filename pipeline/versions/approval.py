"""Pushes a model that waits, because somebody says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.example_gen.paths import is_remote
from components.pusher.certificate import CERTIFICATE_FOLDER
from components.pusher.versions import Provenance, now, push_new_version
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.lock import one_at_a_time
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata.store import check_store
from pipeline.records.notify import check_secrets, notify, wait_for_deliveries
from pipeline.versions.catalog import Version, read_catalog
from pipeline.versions.hold import pushing, read_hold
from pipeline.versions.waiting import Waiting, mark_blessing, read_waiting, serves_all
from trainer_module.errors import ConfigError


@dataclass(frozen=True)
class ApprovalRequest:
    """What is approved."""

    number: int
    reason: str
    """Why, for people."""
    force: bool = False
    """Also where a model that was trained later has been pushed meanwhile."""


def approve(
    config: PipelineConfig, layout: Layout, event_log: EventLog, request: ApprovalRequest
) -> list[str]:
    """Pushes a model that waits, as Pusher does: whole or not at all, and by its provenance.

    Killed at whatever moment, the same command finishes what it began.

    Args:
      config: of the pipeline.
      layout: of the pipeline.
      event_log: of the pipeline.
      request: which one, and why.

    Returns:
      What was done, line by line.

    Raises:
      ConfigError: no such model waits, pushes are held, a later model has been pushed, the model's
        files are gone or damaged, the serving folder is remote or cannot be written, the metadata
        cannot be used, or a secret that the notification needs is not set.
      DataError: a file is damaged only in its copy.
      TryLaterError: a run is under way, or the metadata is busy or away.
    """
    check_secrets(config.notify, Occasion.PUSHED)
    _find(event_log, request.number)
    with one_at_a_time(layout), pushing(layout):
        waiting = _find(event_log, request.number)
        connection = check_store(config.metadata, layout)
        catalog = read_catalog(layout, event_log)
        provenance = Provenance(
            waiting.model, waiting.model_id, waiting.model_created, waiting.run, now()
        )
        # Killed after its push, an earlier approval has left the version and no word of it.
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
                )
            except OSError as error:
                raise ConfigError(
                    f"{layout.serving}: version {waiting.number} cannot be copied "
                    f"({error.strerror or error}); what served before still serves; mend that, and "
                    "repeat the command"
                ) from None
        else:
            version = Path(catalog[0].path)
        if connection is not None:  # Metadata that was moved away has no mark to lift.
            mark_blessing(connection, waiting, waits=False)
        lines = [_record(config, event_log, waiting, version, request.reason)]
    wait_for_deliveries()
    return lines


def _find(event_log: EventLog, number: int) -> Waiting:
    found = read_waiting(event_log)
    for waiting in found:
        if waiting.number == number:
            return waiting
    names = ", ".join(str(waiting.number) for waiting in found if not waiting.is_superseded)
    raise ConfigError(
        f"approve {number}: no such model waits; " + (f"there is {names}" if names else "none does")
    )


def _check(
    layout: Layout, waiting: Waiting, catalog: list[Version], request: ApprovalRequest
) -> None:
    """Raises ConfigError if a model cannot or should not be pushed."""
    said = f"approve {waiting.number}"
    if (hold := read_hold(layout)) is not None:
        raise ConfigError(f"{said}: {hold}; `release` comes first")
    if is_remote(layout.serving) or is_remote(waiting.model):
        raise ConfigError(
            f"{said}: {layout.serving} or the model at {waiting.model} is in no folder of this "
            "machine, and only there can a version be put in place whole; a run without "
            "push.approve pushes it"
        )
    if waiting.is_superseded and not request.force:
        raise ConfigError(
            f"{said}: version {catalog[0].number if catalog else '?'} is of a model that was "
            "trained later; --force replaces it with this one all the same"
        )
    if not waiting.is_there(layout):
        raise ConfigError(
            f"{said}: {waiting.exported_in(layout)} is gone: retention keeps the newest models "
            "that wait, as many as `schedule.keep.versions`, and none once a later one is pushed; "
            "train again"
        )
    if damage := waiting.damage(layout):
        raise ConfigError(f"{said}: the model is damaged: {damage}; train again")


def _record(
    config: PipelineConfig, event_log: EventLog, waiting: Waiting, version: Path, reason: str
) -> str:
    """Writes down an approval whose version is in place; gives it in a sentence."""
    message = f"version {version.name} is in service, which waited as {waiting.number}: {reason}"
    number = int(version.name)
    event_log.record(
        EventKind.APPROVED,
        message,
        run=waiting.run,
        version=number,
        waited=waiting.number,
        reason=reason,
    )
    kept = {key: waiting.details.get(key) for key in ("metrics", "window", "strategy")}
    event_log.record(
        EventKind.PUSHED,
        f"to {version}",
        run=waiting.run,
        version=version.name,
        path=str(version),
        model=waiting.model,
        waited=waiting.number,
        **kept,
    )
    details = {"metrics": kept["metrics"], "reason": reason}
    notify(
        config.notify, config.name, Occasion.PUSHED, message, details, event_log, run=waiting.run
    )
    return message
