"""The last execution of a component of a pipeline, as the metadata has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.component_ids import ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata.store import connection_config
from trainer_module.errors import ConfigError


@dataclass(frozen=True)
class LastExecution:
    """What it was given, and what it has left."""

    uris: dict[str, list[str]]
    """Of its inputs and outputs, by their keys."""
    properties: Any
    """Its parameters, as ML Metadata has them."""


def find_last_execution(
    config: PipelineConfig, layout: Layout, component: ComponentId, has_ended: bool
) -> LastExecution | None:
    """Finds an execution; None if there is none.

    Args:
      config: of the pipeline.
      layout: of the pipeline.
      component: the component.
      has_ended: whether it has to have come to its end, from the cache or not.

    Raises:
      ConfigError: its files are gone.
    """
    if config.metadata is None and not layout.metadata.exists():
        return None
    import ml_metadata as mlmd

    store = mlmd.MetadataStore(connection_config(config.metadata, layout))
    node = store.get_context_by_type_and_name("node", f"{config.name}.{component}")
    executions = store.get_executions_by_context(node.id) if node else []
    done = [e for e in executions if not has_ended or e.last_known_state in (e.COMPLETE, e.CACHED)]
    if not done:
        return None
    last = max(done, key=lambda execution: execution.id)
    return LastExecution(_uris(store, last.id), last.custom_properties)


def _uris(store: Any, execution: int) -> dict[str, list[str]]:
    """Where the inputs and outputs of an execution are, by their keys."""
    events = store.get_events_by_execution_ids([execution])
    artifacts = {a.id: a for a in store.get_artifacts_by_id([e.artifact_id for e in events])}
    uris: dict[str, list[str]] = {}
    for event in events:
        artifact = artifacts[event.artifact_id]
        if artifact.state == artifact.DELETED:
            raise ConfigError(f"{artifact.uri}, which the last run used, has been deleted.")
        uris.setdefault(event.path.steps[0].key, []).append(artifact.uri)
    return uris
