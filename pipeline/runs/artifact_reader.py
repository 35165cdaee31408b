"""Reads the artifacts of a run's components for the run's summary."""

from __future__ import annotations

import json
import logging
import math
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_metadata.proto import metadata_store_pb2
from pydantic import ValidationError
from tfx.components.evaluator import constants as evaluator_constants
from tfx.dsl.io import fileio
from tfx.orchestration import metadata
from tfx.types import Artifact, artifact_utils

from components.column_types.choice import Choice, read_choices
from components.evaluator.explanation.artifact import read_explanation
from components.evaluator.explanation.record import Explanation
from components.evaluator.gate import GateReport
from components.evaluator.gate import read_report as read_report_of_gate
from components.example_gen.notes import read_notes
from components.example_validator.review import Review, read_review
from components.infra_validator.component import BLESSED_PROPERTY, read_certificate
from components.optimizer.artifacts import read_report
from components.optimizer.report import OptimizerReport
from components.pusher.versions import WITHDRAWN_PROPERTY
from components.row_counts import rows_per_split
from components.schema_reader import read_schema_artifact
from components.tuner.records import read_leaderboard
from pipeline.component_ids import ComponentId
from pipeline.config.sections.evaluate import Criteria
from pipeline.records.summary import EvaluationReport, MetricSummary
from pipeline.runs.lineage import artifacts_by_id, newest_statistics
from pipeline.runs.observer import PushedVersion
from trainer_module.families import family_of

if TYPE_CHECKING:
    from components.example_validator.anomalies import Anomaly

logger = logging.getLogger(__name__)


class ArtifactReader:
    """A reader of the inputs and outputs of a run's executions.

    Components that have not run yet have no inputs and outputs.
    """

    def __init__(self, connection: metadata_store_pb2.ConnectionConfig, criteria: Criteria):
        """Stores the arguments; reads nothing."""
        self._connection = connection
        self._criteria = criteria
        self._executions: dict[str, int] = {}

    def add(self, component: str, execution: int) -> None:
        """Registers a component's execution, so that its inputs and outputs can be read."""
        self._executions[component] = execution

    def outputs(self, component: str, key: str) -> list[Artifact]:
        """Returns the output artifacts of a component, if the component has run."""
        return self._artifacts(component, key, metadata_store_pb2.Event.OUTPUT)

    def inputs(self, component: str, key: str) -> list[Artifact]:
        """Returns the input artifacts of a component, if the component has run."""
        return self._artifacts(component, key, metadata_store_pb2.Event.INPUT)

    def _artifacts(self, component: str, key: str, direction: int) -> list[Artifact]:
        if component not in self._executions:
            return []
        with metadata.Metadata(self._connection) as handle:
            events = handle.store.get_events_by_execution_ids([self._executions[component]])
            ids = [
                event.artifact_id
                for event in events
                if event.type == direction and event.path.steps[0].key == key
            ]
            return artifacts_by_id(handle.store, ids)

    def newest_statistics(self, examples: str) -> Artifact | None:
        """Returns the newest live statistics of the examples at a URI, or None."""
        return newest_statistics(self._connection, [examples]).get(examples)

    def examples_per_split(self) -> dict[str, int]:
        """Returns the number of examples in each split."""
        # The import is here, because only readers of statistics need TFDV.
        from tfx.components.statistics_gen import stats_artifact_utils

        return {
            split: stats_artifact_utils.load_statistics(artifact, split)
            .proto()
            .datasets[0]
            .num_examples
            for artifact in self.outputs(ComponentId.STATISTICS_GEN, "statistics")
            for split in artifact_utils.decode_split_names(artifact.split_names)
        }

    def examples_uri(self) -> str:
        """Returns the URI of the examples."""
        (examples,) = self.outputs(ComponentId.EXAMPLE_GEN, "examples")
        return str(examples.uri)

    def example_rows(self) -> dict[str, int]:
        """Returns the number of rows that ExampleGen has written, by split."""
        return rows_per_split(self.examples_uri())

    def explanation(self) -> Explanation | None:
        """Returns the Evaluator's explanation of the model, or None if there is none to read."""
        for artifact in self.outputs(ComponentId.EVALUATOR, "evaluation"):
            try:
                if (explanation := read_explanation(artifact.uri)) is not None:
                    return explanation
            except ValidationError:
                logger.warning("%s: another release wrote the explanation", artifact.uri)
        return None

    def notes(self) -> list[str]:
        """Returns ExampleGen's notes on the data."""
        return [
            note
            for artifact in self.outputs(ComponentId.EXAMPLE_GEN, "examples")
            for note in read_notes(artifact).sentences
        ]

    def model_uri(self) -> str | None:
        """Returns the URI of the model, or None if the Trainer made no model."""
        models = self.outputs(ComponentId.TRAINER, "model")
        return str(models[0].uri) if models else None

    def blessed_model(self) -> Artifact | None:
        """Returns the model if the model is blessed and not withdrawn, whatever its certificate."""
        models = self.outputs(ComponentId.TRAINER, "model")
        blessings = self.outputs(ComponentId.EVALUATOR, "blessing")
        if not models or not any(map(_is_blessed, blessings)):
            return None
        return None if models[0].get_int_custom_property(WITHDRAWN_PROPERTY) else models[0]

    def column_choices(self) -> dict[str, Choice]:
        """Returns the types that SchemaGen chose for columns that the config does not declare."""
        return {
            name: choice
            for artifact in self.outputs(ComponentId.SCHEMA_GEN, "schema")
            for name, choice in read_choices(read_schema_artifact(artifact.uri)).items()
        }

    def anomalies(self) -> list[Anomaly]:
        """Returns the anomalies that ExampleValidator found."""
        # The import is here, because only readers of anomalies need TFDV.
        from components.example_validator.anomalies import read_anomalies

        return [
            anomaly
            for artifact in self.outputs(ComponentId.EXAMPLE_VALIDATOR, "anomalies")
            for anomaly in read_anomalies(artifact)
        ]

    def column_review(self) -> Review:
        """Returns ExampleValidator's review of the columns."""
        for artifact in self.outputs(ComponentId.EXAMPLE_VALIDATOR, "anomalies"):
            return read_review(artifact)
        return Review()

    def tuning(self) -> dict[str, Any]:
        """Returns the Tuner's leaderboard: the best values, and all trials."""
        for artifact in self.outputs(ComponentId.TUNER, "tuner_results"):
            return read_leaderboard(artifact.uri)
        return {}

    def training(self) -> dict[str, Any]:
        """Returns the Trainer's record: strategy, replicas, epochs, history."""
        # The import is here, because this module imports the training code.
        from trainer_module.runtime import RECORD_FILE

        for artifact in self.outputs(ComponentId.TRAINER, "model_run"):
            path = posixpath.join(artifact.uri, RECORD_FILE)
            if fileio.exists(path):
                with fileio.open(path, "r") as opened:
                    return dict(json.loads(opened.read()))
        return {}

    def evaluation(self) -> EvaluationReport | None:
        """Returns the Evaluator's metrics and verdict; None before the Evaluator has run."""
        evaluations = self.outputs(ComponentId.EVALUATOR, "evaluation")
        blessings = self.outputs(ComponentId.EVALUATOR, "blessing")
        if not evaluations or not blessings:
            return None
        if (report := read_report_of_gate(evaluations[0].uri)) is not None:
            return _convert_report(report)
        # The import is here, because the import of TFMA takes seconds.
        from pipeline.runs.evaluation_report import read_evaluation

        return read_evaluation(evaluations[0].uri, self._criteria, _is_blessed(blessings[0]))

    def mistakes(self) -> str:
        """Returns a sentence about the most frequent confusions of classes, or an empty string."""
        has_label = family_of(self._criteria.task).has_label
        if ComponentId.EVALUATOR not in self._executions or not has_label:
            return ""
        from pipeline.runs.evaluation_report import describe_mistakes

        for evaluation in self.outputs(ComponentId.EVALUATOR, "evaluation"):
            return describe_mistakes(evaluation.uri, self.model_uri())
        return ""

    def certificate(self) -> dict[str, Any]:
        """Returns the certificate of the model's interfaces, or an empty mapping."""
        for artifact in self.outputs(ComponentId.INFRA_VALIDATOR, "blessing"):
            return read_certificate(artifact.uri)
        return {}

    def certificate_folder(self) -> str:
        """Returns the folder of the certificate, or an empty string."""
        blessings = self.outputs(ComponentId.INFRA_VALIDATOR, "blessing")
        return str(blessings[0].uri) if blessings else ""

    def is_refused(self) -> bool:
        """Returns whether the certificate refuses the model."""
        blessings = self.outputs(ComponentId.INFRA_VALIDATOR, "blessing")
        return any(not b.get_int_custom_property(BLESSED_PROPERTY) for b in blessings)

    def variants_uri(self) -> str | None:
        """Returns the URI of the model's variants, or None if the Optimizer made no variants."""
        artifacts = self.outputs(ComponentId.OPTIMIZER, "variants")
        return str(artifacts[0].uri) if artifacts else None

    def variants(self) -> OptimizerReport | None:
        """Returns the Optimizer's report, or None."""
        uri = self.variants_uri()
        return None if uri is None else read_report(uri)

    def pushed_version(self) -> PushedVersion | None:
        """Returns the version that the Pusher made, or None if it pushed nothing."""
        for artifact in self.outputs(ComponentId.PUSHER, "pushed_model"):
            if artifact.get_int_custom_property("pushed"):
                destination = artifact.get_string_custom_property("pushed_destination")
                return PushedVersion(destination, Path(artifact.uri))
        return None


def _convert_report(report: GateReport) -> EvaluationReport:
    """Returns the report of an evaluation without TFMA in the form of a report with TFMA."""
    metrics = {
        metric.name: MetricSummary(
            value=math.nan if metric.value is None else metric.value,
            in_service=metric.in_service,
            needs=metric.needs,
            ok=not metric.failure,
            interval=metric.interval,
            difference=metric.difference,
        )
        for metric in report.metrics
    }
    return EvaluationReport(report.blessed, report.reason, metrics, {}, list(report.notes))


def _is_blessed(blessing: Artifact) -> bool:
    value = blessing.get_int_custom_property(evaluator_constants.ARTIFACT_PROPERTY_BLESSED_KEY)
    return bool(value == evaluator_constants.BLESSED_VALUE)


def gist(findings: Sequence[str]) -> str:
    """Returns the first finding and the number of further findings, for a line on the console."""
    if not findings:
        return ""
    more = len(findings) - 1
    return f"warning: {findings[0]}" + (f" (and {more} more)" if more else "")
