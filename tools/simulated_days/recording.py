"""Copies the records of a night in ML Metadata as records of the next night.

ML Metadata's own client writes the copies. They have the same executions, artifacts and contexts, a
day later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as pb
from tfx.components.evaluator import constants


@dataclass(frozen=True)
class _Role:
    """The role of an artifact in a night: its node, its key, and the age of the artifact
    in nights.
    """

    node: str
    key: str
    nights_ago: int


@dataclass
class RecordedNight:
    """The executions of a night and their outputs."""

    executions: dict[str, tuple[pb.Execution, list[tuple[_Role, pb.Event]], list[pb.Context]]]
    """The executions by node, in the order of execution, with their events and contexts."""
    outputs: dict[tuple[str, str], pb.Artifact]
    """The output artifacts by node and key."""
    before: RecordedNight | None = None

    @classmethod
    def of(cls, store: MetadataStore, run: str, before: RecordedNight) -> RecordedNight:
        """Returns the records of a run that used TFX's launcher."""
        context = store.get_context_by_type_and_name("pipeline_run", f"{run}")
        night = cls({}, {}, before)
        for execution in sorted(
            store.get_executions_by_context(context.id), key=lambda execution: execution.id
        ):
            contexts = store.get_contexts_by_execution(execution.id)
            node = next(c.name.partition(".")[2] for c in contexts if c.type == "node")
            events = store.get_events_by_execution_ids([execution.id])
            artifacts = {
                a.id: a for a in store.get_artifacts_by_id([e.artifact_id for e in events])
            }
            for event in events:
                if event.type == pb.Event.OUTPUT:
                    key = event.path.steps[0].key
                    night.outputs[node, key] = artifacts[event.artifact_id]
            events_by_role = [(night.role_of(event.artifact_id), event) for event in events]
            night.executions[node] = execution, events_by_role, contexts
        return night

    def nights(self) -> Iterator[RecordedNight]:
        """Yields this night and the nights before it, newest first."""
        night: RecordedNight | None = self
        while night is not None:
            yield night
            night = night.before

    def role_of(self, artifact: int) -> _Role:
        """Returns the role of an artifact in this night."""
        for ago, night in enumerate(self.nights()):
            for (node, key), output in night.outputs.items():
                if output.id == artifact:
                    return _Role(node, key, ago)
        raise LookupError(artifact)

    def copy_night(self, store: MetadataStore, run: str, reach: int) -> RecordedNight:
        """Records a copy of the night a day later.

        Args:
          store: the store of the records.
          run: the id of the copied run.
          reach: the number of newest nights whose artifacts the copy may use.
        """
        new = RecordedNight({}, {}, self)
        history = [*new.nights()][:reach]
        history[-1].before = None  # Older nights would form a long chain in memory.
        for node, (execution, events_by_role, contexts) in self.executions.items():
            copy = pb.Execution()
            copy.CopyFrom(execution)
            for field in ("id", "name", "create_time_since_epoch", "last_update_time_since_epoch"):
                copy.ClearField(field)
            pairs = [
                (_artifact(role, history, node, run), _event(event))
                for role, event in events_by_role
            ]
            execution_id, ids, _ = store.put_execution(
                copy,
                pairs,
                [_context(context, run) for context in contexts],
                reuse_context_if_already_exist=True,
            )
            copy.id = execution_id
            for (role, event), (_, _), number in zip(events_by_role, pairs, ids, strict=True):
                if event.type == pb.Event.OUTPUT and role.nights_ago == 0:
                    (new.outputs[node, role.key],) = store.get_artifacts_by_id([number])
            new.executions[node] = copy, events_by_role, contexts
        for key, artifact in self.outputs.items():
            new.outputs.setdefault(key, artifact)  # The artifact is from the cache.
        return new


def _artifact(role: _Role, nights: list[RecordedNight], node: str, run: str) -> pb.Artifact:
    """Returns the artifact with the same role a day later: an existing artifact or a new copy."""
    night = nights[role.nights_ago]
    if (role.node, role.key) in night.outputs:
        return night.outputs[role.node, role.key]
    before = nights[role.nights_ago + 1].outputs[role.node, role.key]
    artifact = pb.Artifact()
    artifact.CopyFrom(before)
    for field in ("id", "name", "create_time_since_epoch", "last_update_time_since_epoch"):
        artifact.ClearField(field)
    folder = Path(before.uri).with_name(run)
    folder.mkdir(parents=True)
    (folder / "content").write_bytes(b"content")
    artifact.uri = str(folder)
    if "span" in artifact.custom_properties:
        artifact.custom_properties["span"].int_value += 1
    if constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY in artifact.custom_properties:
        model = nights[0].outputs["Trainer", "model"].id
        artifact.custom_properties[
            constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY
        ].int_value = model
    return artifact


def _event(event: pb.Event) -> pb.Event:
    copy = pb.Event(type=event.type)
    copy.path.CopyFrom(event.path)
    return copy


def _context(context: pb.Context, run: str) -> pb.Context:
    """Returns the context of a pipeline or node unchanged, or a new context for a run or
    cache key.
    """
    if context.type in ("pipeline", "node"):
        return context
    copy = pb.Context(type_id=context.type_id)
    copy.name = run if context.type == "pipeline_run" else f"{context.name[:32]}{run}"
    for name, value in context.custom_properties.items():
        copy.custom_properties[name].CopyFrom(value)
    return copy
