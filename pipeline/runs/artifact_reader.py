"""What a run left behind, read from its artifacts."""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants as evaluator_constants
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.io import fileio
from tfx.orchestration import metadata
from tfx.types import Artifact, artifact_utils

from components.example_validator.component import Anomaly, read_anomalies
from pipeline.config.settings import PipelineConfig
from pipeline.runs.evaluation_report import EvaluationReport, read_evaluation
from trainer_module.record import RECORD_FILE
from trainer_module.settings import IgnoredFeature


@dataclass(frozen=True)
class PushedVersion:
    """A pushed model: the folder (or URI) it is served from, and Pusher's own copy of it."""

    destination: str
    archive: Path


class ArtifactReader:
    """Reads the outputs of a run's executions, as far as it came."""

    def __init__(self, connection: metadata_store_pb2.ConnectionConfig, config: PipelineConfig):
        """Reads nothing yet.

        Args:
          connection: of the metadata store.
          config: of the run.
        """
        self._connection = connection
        self._config = config
        self._executions: dict[str, int] = {}

    def add(self, component: str, execution: int) -> None:
        """Makes the outputs of a component's execution readable."""
        self._executions[component] = execution

    def outputs(self, component: str, key: str) -> list[Artifact]:
        """The output artifacts of a component; empty if it did not come to them."""
        if component not in self._executions:
            return []
        with metadata.Metadata(self._connection) as handle:
            store = handle.store
            events = store.get_events_by_execution_ids([self._executions[component]])
            ids = [
                event.artifact_id
                for event in events
                if event.type == metadata_store_pb2.Event.OUTPUT and event.path.steps[0].key == key
            ]
            artifacts = store.get_artifacts_by_id(ids)
            types = store.get_artifact_types_by_id([a.type_id for a in artifacts])
        return [
            artifact_utils.deserialize_artifact(kind, artifact)
            for kind, artifact in zip(types, artifacts, strict=True)
        ]

    def examples_per_split(self) -> dict[str, int]:
        """How many examples each split holds."""
        return {
            split: stats_artifact_utils.load_statistics(artifact, split)
            .proto()
            .datasets[0]
            .num_examples
            for artifact in self.outputs("StatisticsGen", "statistics")
            for split in artifact_utils.decode_split_names(artifact.split_names)
        }

    def examples_uri(self) -> str:
        """Where the examples are."""
        (examples,) = self.outputs("ExampleGen", "examples")
        return str(examples.uri)

    def anomalies(self) -> list[Anomaly]:
        """What ExampleValidator found."""
        ignored = self._config.columns_of(IgnoredFeature)
        return [
            anomaly
            for artifact in self.outputs("ExampleValidator", "anomalies")
            for anomaly in read_anomalies(artifact, self._config.data.label, ignored)
        ]

    def training(self) -> dict[str, Any]:
        """What Trainer wrote about its work: strategy, replicas, epochs, history."""
        for artifact in self.outputs("Trainer", "model_run"):
            path = posixpath.join(artifact.uri, RECORD_FILE)
            if fileio.exists(path):
                with fileio.open(path, "r") as opened:
                    return dict(json.loads(opened.read()))
        return {}

    def evaluation(self) -> EvaluationReport | None:
        """What Evaluator measured and decided; None if it did not come to that."""
        evaluations = self.outputs("Evaluator", "evaluation")
        blessings = self.outputs("Evaluator", "blessing")
        if not evaluations or not blessings:
            return None
        blessed = blessings[0].get_int_custom_property(
            evaluator_constants.ARTIFACT_PROPERTY_BLESSED_KEY
        )
        return read_evaluation(
            evaluations[0].uri, self._config, blessed == evaluator_constants.BLESSED_VALUE
        )

    def pushed_version(self) -> PushedVersion | None:
        """The version that Pusher made; None if it pushed nothing."""
        for artifact in self.outputs("Pusher", "pushed_model"):
            if artifact.get_int_custom_property("pushed"):
                destination = artifact.get_string_custom_property("pushed_destination")
                return PushedVersion(destination, Path(artifact.uri))
        return None
