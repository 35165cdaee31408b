"""Marks models as withdrawn: in ML Metadata for resolvers, in versions' folders for servers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from components.example_gen.paths import is_remote
from components.pusher.versions import WITHDRAWN_PROPERTY, lift_withdrawal, mark_withdrawn
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.lock import run_lock
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.metadata_store import check_store
from pipeline.versions.artifacts import find_models
from pipeline.versions.catalog import Version, find_serving, find_version, read_catalog
from trainer_module.errors import ConfigError
from trainer_module.typed_words import typed_command


def withdraw(
    config: PipelineConfig,
    layout: Layout,
    event_log: EventLog,
    number: int,
    reason: str | None = None,
) -> list[str]:
    """Withdraws a version that is not in service.

    No later run uses the version as baseline or for a warm start, and no server loads it.

    Returns:
      Lines about what was done.

    Raises:
      ConfigError: there is no such version, or its model is in service; a run is in progress; the
        metadata cannot be used.
    """
    find_version(read_catalog(layout, event_log), number, "--withdraw")
    with run_lock(layout):
        catalog = read_catalog(layout, event_log)
        version = find_version(catalog, number, "--withdraw")
        copies = [other for other in catalog if other.identity == version.identity]
        serving = find_serving(catalog)
        if serving is not None and serving in copies:
            name = "" if serving == version else f" as version {serving.number}"
            raise ConfigError(
                f"--withdraw {number}: this model is in service{name}; "
                f"`{typed_command('rollback')}` puts another version in service and withdraws "
                "this version"
            )
        lines = mark_models(config, layout, copies, withdrawn=True, reason=reason)
        lines += record_withdrawn(event_log, copies, reason, "models --withdraw")
    return lines or [f"version {number} was withdrawn before"]


def record_withdrawn(
    event_log: EventLog, versions: Iterable[Version], reason: str | None, command: str
) -> list[str]:
    """Records the versions that a command withdraws now; returns a line for each."""
    lines = []
    for version in versions:
        if not version.is_withdrawal_recorded:
            message = f"version {version.number} was withdrawn"
            message += f": {reason}" if reason else ""
            event_log.record(
                EventKind.WITHDRAWN,
                message,
                version=version.number,
                model=version.model,
                reason=reason,
                command=command,
            )
            lines.append(message)
    return lines


def mark_models(
    config: PipelineConfig,
    layout: Layout,
    versions: Iterable[Version],
    withdrawn: bool,
    reason: str | None = None,
) -> list[str]:
    """Sets or lifts the marks of withdrawn versions.

    All models are marked in one transaction, then the folders of the versions.

    Args:
      versions: all versions of these models.
      withdrawn: whether to set the mark.

    Returns:
      A line for each version whose model is not in the metadata, where no run can find it, and for
      each version whose folder cannot be written.

    Raises:
      ConfigError: the metadata cannot be used.
    """
    versions = list(versions)
    if not versions:
        return []
    artifacts: dict[tuple[object, ...], list[int]] = {}
    connection = check_store(config.metadata, layout)
    if connection is not None:
        artifacts = _mark(connection, versions, withdrawn)
    lines = [
        f"version {version.number}: its model is not in the pipeline's metadata, so only "
        "its folder is marked"
        for version in versions
        if not artifacts.get(version.identity)
    ]
    return lines + _mark_folders(versions, withdrawn, reason)


def _mark(
    connection: Any, versions: list[Version], withdrawn: bool
) -> dict[tuple[object, ...], list[int]]:
    """Marks models; returns the ids of the Model artifacts by the identity of the versions."""
    import ml_metadata as mlmd

    store = mlmd.MetadataStore(connection)
    changed, artifact_ids = {}, {}
    for version in {v.identity: v for v in versions if v.model is not None}.values():
        artifacts = find_models(store, str(version.model), version.provenance.model_created)
        artifact_ids[version.identity] = [artifact.id for artifact in artifacts]
        for artifact in artifacts:
            mark = artifact.custom_properties[WITHDRAWN_PROPERTY]
            # Setting an equal value would change the inputs of executions that took the model.
            if bool(mark.int_value) != withdrawn:
                mark.int_value = int(withdrawn)
                changed[artifact.id] = artifact
    if changed:
        store.put_artifacts(list(changed.values()))  # The call is one transaction.
    return artifact_ids


def _mark_folders(versions: Iterable[Version], withdrawn: bool, reason: str | None) -> list[str]:
    """Sets or lifts the marks in folders; returns a line for each folder that cannot be written."""
    lines = []
    for version in versions:
        if is_remote(version.path):
            continue
        folder = Path(version.path)
        try:
            if withdrawn:
                mark_withdrawn(folder, version.reason or reason)
            else:
                lift_withdrawal(folder)
        except OSError as error:
            command = f"to repeat: `{typed_command(f'models --withdraw {version.number}')}`"
            effect = f"may use this version; {command}" if withdrawn else "still skip this version"
            lines.append(
                f"version {version.number}: {folder} cannot be written"
                f" ({error.strerror or error}), so newly started servers {effect}"
            )
    return lines
