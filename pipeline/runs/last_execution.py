"""Finds the last execution of a component, and the checkpoints of the last training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.column_types.injection import complete
from components.trainer.best_values import apply_best
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import EVAL_SPLIT, TRAIN_SPLIT
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata_store import connection_config
from trainer_module.errors import ConfigError

LATEST = "latest"
"""The name of the newest checkpoint on the command line."""


@dataclass(frozen=True)
class LastTraining:
    """The arguments of a training that are necessary to evaluate its checkpoints."""

    model_run_dir: str
    transform_graph_path: str
    train_files: list[str]
    eval_files: list[str]
    custom_config: dict[str, Any]


def find_last_training(config: PipelineConfig, layout: Layout) -> LastTraining:
    """Returns the last completed or cached training.

    Args:
      config: the config; its `train` may differ from the settings of the training.

    Raises:
      ConfigError: no training has completed, or its files have been deleted.
    """
    last = find_last_execution(config, layout, ComponentId.TRAINER, has_ended=True)
    if last is None:
        raise ConfigError(
            f"no training of {config.name} has ended in {layout.root}; run the pipeline first."
        )
    uris = last.uris
    examples = uris["examples"]
    settings = complete(
        json.loads(last.properties["custom_config"].string_value), uris["schema"][0]
    )
    if tuned := uris.get("hyperparameters"):
        settings = apply_best(settings, tuned[0])
    return LastTraining(
        model_run_dir=uris["model_run"][0],
        transform_graph_path=uris["transform_graph"][0],
        train_files=[f"{uri}/Split-{TRAIN_SPLIT}/*" for uri in examples],
        eval_files=[f"{uri}/Split-{EVAL_SPLIT}/*" for uri in examples],
        custom_config=settings,
    )


def find_checkpoint(training: LastTraining, epoch: str) -> str:
    """Returns the path of a checkpoint that a training has kept.

    Args:
      epoch: `latest`, or the number of an epoch.

    Raises:
      ConfigError: there is no such checkpoint; the message lists the existing ones.
    """
    import tensorflow as tf

    from trainer_module.training.checkpoint import CHECKPOINTS_FOLDER, names_by_epoch

    folder = f"{training.model_run_dir}/{CHECKPOINTS_FOLDER}"
    latest = tf.train.latest_checkpoint(folder)
    if latest is None and "trees" in _record(training):
        raise ConfigError("the last training has grown trees, which have no checkpoints.")
    if latest is None:
        raise ConfigError(
            "the last training has kept no checkpoint; add `checkpoints: {keep: 3}` to the section "
            "`train` and run the pipeline again."
        )
    if epoch == LATEST:
        return str(latest)
    names = names_by_epoch(folder)
    if epoch not in map(str, names):
        raise ConfigError(
            f"--checkpoint {epoch}: the last training has kept no checkpoint of this epoch; "
            f"expected {', '.join(map(str, sorted(names)))} or {LATEST}."
        )
    return f"{folder}/{names[int(epoch)]}"


def _record(training: LastTraining) -> dict[str, Any]:
    from trainer_module.runtime import RECORD_FILE

    return dict(json.loads(Path(training.model_run_dir, RECORD_FILE).read_text()))


@dataclass(frozen=True)
class LastExecution:
    """The artifacts and parameters of a component's last execution."""

    uris: dict[str, list[str]]
    """The URIs of the inputs and outputs, by their keys."""
    properties: Any
    """The parameters of the execution, as ML Metadata stores them."""


def find_last_execution(
    config: PipelineConfig, layout: Layout, component: ComponentId, has_ended: bool
) -> LastExecution | None:
    """Returns the last execution of a component, or None.

    Args:
      has_ended: whether to consider only completed and cached executions.

    Raises:
      ConfigError: an input or output has been deleted.
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
    """Returns the URIs of an execution's inputs and outputs, by their keys."""
    events = store.get_events_by_execution_ids([execution])
    artifacts = {a.id: a for a in store.get_artifacts_by_id([e.artifact_id for e in events])}
    uris: dict[str, list[str]] = {}
    for event in events:
        artifact = artifacts[event.artifact_id]
        if artifact.state == artifact.DELETED:
            raise ConfigError(f"{artifact.uri}, which the last run used, has been deleted.")
        uris.setdefault(event.path.steps[0].key, []).append(artifact.uri)
    return uris
