"""Reads what the components of a run left behind, and puts it into the run's summary."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants as evaluator_constants
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.io import fileio
from tfx.orchestration import metadata
from tfx.types import Artifact, artifact_utils

from components.example_gen.notes import read_notes
from components.example_validator.anomalies import Anomaly, read_anomalies
from components.example_validator.review import read_findings, show_findings
from components.pusher.versions import WITHDRAWN_PROPERTY
from pipeline.component_ids import ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.records.summary import MetricSummary, RunSummary, State
from pipeline.runs.results.evaluation_report import EvaluationReport, read_evaluation
from pipeline.runs.results.run_results import PushedVersion
from trainer_module.record import RECORD_FILE


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
            for artifact in self.outputs(ComponentId.STATISTICS_GEN, "statistics")
            for split in artifact_utils.decode_split_names(artifact.split_names)
        }

    def examples_uri(self) -> str:
        """Where the examples are."""
        (examples,) = self.outputs(ComponentId.EXAMPLE_GEN, "examples")
        return str(examples.uri)

    def notes(self) -> list[str]:
        """What ExampleGen has to say of the data."""
        return [
            note
            for artifact in self.outputs(ComponentId.EXAMPLE_GEN, "examples")
            for note in read_notes(artifact)
        ]

    def model_uri(self) -> str | None:
        """Where the model is; None if Trainer did not come to one."""
        models = self.outputs(ComponentId.TRAINER, "model")
        return str(models[0].uri) if models else None

    def blessed_model(self) -> Artifact | None:
        """The model, if it is blessed and was not withdrawn: Pusher would push it."""
        models = self.outputs(ComponentId.TRAINER, "model")
        blessings = self.outputs(ComponentId.EVALUATOR, "blessing")
        if not models or not any(map(_is_blessed, blessings)):
            return None
        return None if models[0].get_int_custom_property(WITHDRAWN_PROPERTY) else models[0]

    def anomalies(self) -> list[Anomaly]:
        """What ExampleValidator found."""
        return [
            anomaly
            for artifact in self.outputs(ComponentId.EXAMPLE_VALIDATOR, "anomalies")
            for anomaly in read_anomalies(artifact)
        ]

    def column_findings(self) -> list[str]:
        """What speaks against columns, in sentences."""
        return [
            sentence
            for artifact in self.outputs(ComponentId.EXAMPLE_VALIDATOR, "anomalies")
            for sentence in show_findings(read_findings(artifact))
        ]

    def training(self) -> dict[str, Any]:
        """What Trainer wrote about its work: strategy, replicas, epochs, history."""
        for artifact in self.outputs(ComponentId.TRAINER, "model_run"):
            path = posixpath.join(artifact.uri, RECORD_FILE)
            if fileio.exists(path):
                with fileio.open(path, "r") as opened:
                    return dict(json.loads(opened.read()))
        return {}

    def evaluation(self) -> EvaluationReport | None:
        """What Evaluator measured and decided; None if it did not come to that."""
        evaluations = self.outputs(ComponentId.EVALUATOR, "evaluation")
        blessings = self.outputs(ComponentId.EVALUATOR, "blessing")
        if not evaluations or not blessings:
            return None
        return read_evaluation(evaluations[0].uri, self._config, _is_blessed(blessings[0]))

    def pushed_version(self) -> PushedVersion | None:
        """The version that Pusher made; None if it pushed nothing."""
        for artifact in self.outputs(ComponentId.PUSHER, "pushed_model"):
            if artifact.get_int_custom_property("pushed"):
                destination = artifact.get_string_custom_property("pushed_destination")
                return PushedVersion(destination, Path(artifact.uri))
        return None


def _is_blessed(blessing: Artifact) -> bool:
    value = blessing.get_int_custom_property(evaluator_constants.ARTIFACT_PROPERTY_BLESSED_KEY)
    return bool(value == evaluator_constants.BLESSED_VALUE)


def gist(findings: Sequence[str]) -> str:
    """The first of some findings, for a component's line."""
    if not findings:
        return ""
    more = len(findings) - 1
    return f"warning: {findings[0]}" + (f" (and {more} more)" if more else "")


class ArtifactResults(ArtifactReader):
    """Reads the results of each component from its artifacts as soon as it has ended."""

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds a component's results to the summary, as `RunResults` says."""
        if execution is not None and state is not State.FAILED:
            self.add(component, execution)
        return SummaryBuilder(self._config, self, summary).of(component, state)


class SummaryBuilder:
    """Reads what components left behind into a summary."""

    def __init__(self, config: PipelineConfig, reader: ArtifactReader, summary: RunSummary) -> None:
        """Reads nothing yet.

        Args:
          config: of the run.
          reader: of the run, as far as it came.
          summary: is filled.
        """
        self._config = config
        self._reader = reader
        self._summary = summary

    def of(self, component: str, state: State) -> tuple[State, str]:
        """Adds a component's results to the summary.

        Args:
          component: that ended.
          state: as TFX has it.

        Returns:
          The state as people have it, and the gist of the results.
        """
        detail = self._read(component)
        if (
            component == ComponentId.PUSHER
            and state is not State.FAILED
            and not self._summary.pushed
        ):
            waiting = self._summary.waiting
            why = "the model is not blessed" if waiting is None else waiting.status.value
            return State.SKIPPED, detail or why
        return state, detail

    def _read(self, component: str) -> str:
        readers: dict[str, Callable[[], str]] = {
            ComponentId.EXAMPLE_GEN: self._read_notes,
            ComponentId.STATISTICS_GEN: self._read_statistics,
            ComponentId.EXAMPLE_VALIDATOR: self._read_anomalies,
            ComponentId.TRAINER: self._read_training,
            ComponentId.EVALUATOR: self._read_evaluation,
            ComponentId.PUSHER: self._read_push,
        }
        return readers[component]() if component in readers else ""

    def _read_notes(self) -> str:
        notes = self._reader.notes()
        self._summary.notes += notes
        return gist(notes)

    def _read_statistics(self) -> str:
        self._summary.examples = self._reader.examples_per_split()
        return ", ".join(f"{split} {n:,}" for split, n in self._summary.examples.items())

    def _read_anomalies(self) -> str:
        anomalies = self._reader.anomalies()
        self._summary.anomalies = [str(anomaly) for anomaly in anomalies if not anomaly.is_drift]
        self._summary.drift = [str(anomaly) for anomaly in anomalies if anomaly.is_drift]
        findings = self._reader.column_findings()
        self._summary.notes += findings
        return gist([str(anomaly) for anomaly in anomalies])

    def _read_training(self) -> str:
        training = self._summary.training = self._reader.training()
        if not training:
            return ""
        self._summary.strategy = training["strategy"]
        self._summary.replicas = training["replicas"]
        replicas = "1 replica" if training["replicas"] == 1 else f"{training['replicas']} replicas"
        if training["workers"] > 1:
            replicas = f"{training['workers']} workers, {replicas}"
        return (
            f"{training['epochs']} epochs, best {training['best_epoch']}; "
            f"{training['strategy']}, {replicas}; {training['examples_per_second']:,.0f} examples/s"
        )

    def _read_evaluation(self) -> str:
        evaluation = self._reader.evaluation()
        if evaluation is None:
            return ""
        self._summary.blessed, self._summary.reason = evaluation.blessed, evaluation.reason
        self._summary.metrics = {
            m.name: MetricSummary(value=m.value, in_service=m.in_service, needs=m.needs, ok=m.ok)
            for m in evaluation.metrics
        }
        self._summary.slices = evaluation.slices
        return "blessed" if evaluation.blessed else "not blessed"

    def _read_push(self) -> str:
        models = self._reader.outputs(ComponentId.TRAINER, "model")
        if any(model.get_int_custom_property(WITHDRAWN_PROPERTY) for model in models):
            self._summary.reason = "the model was withdrawn"
            return self._summary.reason
        pushed = self._reader.pushed_version()
        if pushed is None:
            return ""
        self._summary.pushed = pushed.destination
        return ""
