"""Puts an earlier version in service again."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from components.example_gen.paths import is_remote
from components.processes.stopping import defer_stop
from components.pusher.variants import read_manifest
from components.pusher.versions import now, push_new_version
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.lock import run_lock
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.notify import check_secrets, notify, wait_for_deliveries
from pipeline.versions.catalog import Version, describe_versions, find_version, read_catalog
from pipeline.versions.hold import holding, pushing
from pipeline.versions.withdrawal import mark_models, record_withdrawn
from trainer_module.errors import ConfigError, DataError
from trainer_module.typed_words import typed_command


@dataclass(frozen=True)
class RollbackRequest:
    """The options of a rollback."""

    to: int | None = None
    """The version to put in service; default: the previous version with another model."""
    reason: str | None = None
    force: bool = False
    """Whether `to` may be withdrawn, for example to revert a mistaken rollback. The rollback ends
    its withdrawal.
    """
    holds: bool = False
    """Whether to set a hold, which needs a reason."""


def roll_back(
    config: PipelineConfig, layout: Layout, event_log: EventLog, request: RollbackRequest
) -> list[str]:
    """Puts an earlier version in service and withdraws the versions after it.

    Model servers load the version with the highest number, so a rollback pushes a copy of the
    earlier version under a new number. Like any push, the rollback is atomic, as it renames a
    folder. Deleting the newer versions instead would not be atomic, and would delete the evidence.

    The steps are, in this order: the hold, the check of the earlier version's files, the marks on
    models and on versions' folders, the copy and the check of its files, the rename, the event log.
    As soon as the marks are set, Scopeline's servers use the remaining versions. If the rollback is
    interrupted, the next call completes it: the provenance of the copy identifies the rollback.

    Returns:
      Lines about what was done.

    Raises:
      ConfigError: the version does not exist, is withdrawn or is damaged; there is no earlier
        version; the serving folder is remote or full; the metadata cannot be used; a hold cannot be
        written.
      TryLaterError: a run or a push is in progress.
    """
    if is_remote(layout.serving):
        raise ConfigError(
            f"push.directory: {layout.serving} is not a folder of this machine, and a rollback "
            "renames folders; copy the earlier version to a higher number with the tools of the "
            "store, and withdraw the later versions with "
            f"`{typed_command('models --withdraw VERSION')}`"
        )
    if not read_catalog(layout, event_log):
        raise ConfigError(
            f"{layout.serving}: there is no version to go back to: {describe_versions([])}"
        )
    # Meanwhile neither a run nor a step on Kubeflow can push; a step takes only the second lock.
    with run_lock(layout), pushing(layout):
        # The hold comes first: if this process is killed after the copy, the hold stops pushes.
        hold_block = (
            holding(layout, event_log, request.reason or "") if request.holds else nullcontext()
        )
        with hold_block as hold:
            lines, copy = _put_in_service(config, layout, event_log, request)
        if copy is not None:
            lines += _finish(config, layout, event_log, copy, request.reason)
        if hold is not None:
            lines.append(str(hold))
    wait_for_deliveries()
    return lines + _missing_secrets(config)


def _missing_secrets(config: PipelineConfig) -> list[str]:
    """Returns a line if a notification lacks its secret, which does not stop a rollback."""
    try:
        check_secrets(config.notify, Occasion.ROLLED_BACK)
    except ConfigError as error:
        return [f"a notification of the rollback was not sent: {error}"]
    return []


def _put_in_service(
    config: PipelineConfig, layout: Layout, event_log: EventLog, request: RollbackRequest
) -> tuple[list[str], Version | None]:
    """Completes interrupted rollbacks, and copies the target.

    Returns:
      Lines about what was done, and the copy that is not recorded yet, or None.
    """
    lines = []
    for copy in reversed(read_catalog(layout, event_log)):
        if not copy.is_recorded:
            lines += _finish(config, layout, event_log, copy, request.reason, copy.damage)
    catalog = read_catalog(layout, event_log)
    serving = _serving(catalog)
    is_newest = serving is not None and serving is catalog[0]
    if lines and is_newest and _is_done(catalog, request):
        return lines, None
    target, skipped = _choose(catalog, serving, request)
    lines += skipped
    if is_newest and target.identity == catalog[0].identity:
        return [*lines, f"version {catalog[0].number} serves this model already"], None
    newer = _newer(catalog, target)
    try:
        mark_models(config, layout, newer, withdrawn=True, reason=request.reason)
        copy = _copy(layout, target)
    except (ConfigError, KeyboardInterrupt):
        # The new marks are lifted, as the version in service has one. A full disk may prevent that.
        new_marks = [version for version in newer if not version.is_withdrawal_recorded]
        with suppress(Exception), defer_stop():
            mark_models(config, layout, new_marks, withdrawn=False)
        raise
    return lines, copy


def _serving(catalog: list[Version]) -> Version | None:
    """Returns the newest undamaged version without a recorded withdrawal.

    Unlike `find_serving`, this function ignores marks in folders, as an interrupted rollback may
    have set them.
    """
    candidates = (v for v in catalog if not v.is_withdrawal_recorded and not v.damage)
    return next(candidates, None)


def _is_done(catalog: list[Version], request: RollbackRequest) -> bool:
    """Returns whether the rollback that was just completed is the requested rollback."""
    serving = catalog[0]
    if serving.provenance.copy_of is None:
        return False
    requested = [v for v in catalog if v.number == request.to and v.identity == serving.identity]
    return request.to is None or request.to == serving.origin or bool(requested)


def _choose(
    catalog: list[Version], serving: Version | None, request: RollbackRequest
) -> tuple[Version, list[str]]:
    """Returns the version to put in service, and sentences about skipped, damaged versions."""
    if request.to is not None:
        return _target_of(catalog, request.to, request.force), []
    skipped: list[str] = []
    for version in catalog:
        if version.withdrawn:
            continue
        if serving is not None and (
            version.number > serving.number or version.identity == serving.identity
        ):
            continue
        damage = version.damage or version.variant_damage
        if not damage:
            return version, skipped
        skipped.append(f"version {version.number} is damaged and therefore skipped: {damage}")
    suffix = "".join(f"; {line}" for line in skipped)
    raise ConfigError(f"there is no version to go back to: {describe_versions(catalog)}{suffix}")


def _target_of(catalog: list[Version], number: int, force: bool) -> Version:
    """Returns the version of --to; raises ConfigError if it is withdrawn or damaged."""
    target = find_version(catalog, number, "--to")
    if target.is_withdrawal_recorded and not force:
        remark = f" ({target.reason})" if target.reason else ""
        raise ConfigError(
            f"--to {number}: this version was withdrawn{remark}; --force puts it in service "
            f"and ends the withdrawal; {describe_versions(catalog)}"
        )
    if damage := target.damage or target.variant_damage:
        raise ConfigError(
            f"--to {number}: this version is damaged: {damage}; the version in "
            f"service has not changed; {describe_versions(catalog)}"
        )
    return target


def _newer(catalog: list[Version], target: Version) -> list[Version]:
    """Returns the versions to withdraw: all versions of models that are newer than the target's.

    A copy is as old as its original, so the copy of an earlier rollback is not withdrawn.
    """
    later = {v.identity for v in catalog if v.origin > target.origin} - {target.identity}
    return [version for version in catalog if version.identity in later]


def _copy(layout: Layout, target: Version) -> Version:
    """Puts a copy of a version in service; returns the copy's entry of the catalog."""
    provenance = replace(target.provenance, run=None, pushed_at=now(), copy_of=target.origin)
    try:
        version = push_new_version(Path(target.path), Path(layout.serving), provenance)
    except OSError as error:
        raise ConfigError(
            f"{layout.serving}: version {target.number} cannot be copied "
            f"({_describe_error(error)}); the version in service has not changed; fix the cause, "
            "and repeat the command"
        ) from None
    except DataError as error:
        raise ConfigError(f"{error} The version in service has not changed.") from None
    return replace(target, number=int(version.name), path=str(version), provenance=provenance)


def _describe_error(error: OSError) -> str:
    """Returns the reason of an error, with the file if the error has one."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}" if error.strerror else str(error)


def _finish(
    config: PipelineConfig,
    layout: Layout,
    event_log: EventLog,
    copy: Version,
    reason: str | None,
    damage: str = "",
) -> list[str]:
    """Records a rollback whose copy is in the serving folder; the call may be repeated.

    Versions that were pushed after the copy do not change.
    """
    catalog = [v for v in read_catalog(layout, event_log) if v.number <= copy.number]
    newer = _newer(catalog, copy)
    lifted = [v for v in catalog if v.identity == copy.identity and v.withdrawn]
    lines = mark_models(config, layout, newer, withdrawn=True, reason=reason)
    lines += mark_models(config, layout, lifted, withdrawn=False)
    lines += record_withdrawn(event_log, newer, reason, "rollback")
    message = f"version {copy.number} is in service, a copy of version {copy.origin}"
    if damage:
        message = f"version {copy.number}, a copy of version {copy.origin}, is damaged: {damage}"
    event_log.record(
        EventKind.ROLLED_BACK,
        message + (f": {reason}" if reason else ""),
        version=copy.number,
        copy_of=copy.origin,
        model=copy.model,
        reason=reason,
        reinstated=[version.number for version in lifted],
    )
    details = {"version": copy.number, "copy_of": copy.origin, "reason": reason}
    notify(config.notify, config.name, Occasion.ROLLED_BACK, message, details, event_log)
    return [*lines, message, *_lost_variants(catalog, copy)]


def _lost_variants(catalog: list[Version], copy: Version) -> list[str]:
    """Returns advice if the version in service lacks variants that servers may use."""
    if is_remote(copy.path):
        return []
    before = next((v for v in catalog if v.number < copy.number), None)
    try:
        lost = read_manifest(Path(before.path)).keys() if before is not None else set()
        lost = lost - read_manifest(Path(copy.path)).keys()
    except DataError:  # A damaged manifest has no variants to lose.
        return []
    if before is None or not lost:
        return []
    return [
        f"version {copy.number} has no variants {', '.join(sorted(lost))}, which version"
        f" {before.number} has: servers with --variant keep version {before.number} until they are"
        " restarted without --variant"
    ]
