"""Adds the results of each component to the run's summary as soon as the component has ended."""

from __future__ import annotations

import json
from collections.abc import Callable

from ml_metadata.proto import metadata_store_pb2

from components.example_validator.leakage import Strength
from components.example_validator.review import show_findings
from components.pusher.versions import WITHDRAWN_PROPERTY
from pipeline.component_ids import ComponentId
from pipeline.config.sections.data import span_kind
from pipeline.config.settings import PipelineConfig
from pipeline.records.event_log import EventLog
from pipeline.records.summary import (
    CertificateSummary,
    ColumnSummary,
    RunSummary,
    State,
)
from pipeline.runs.artifact_reader import ArtifactReader, gist
from pipeline.runs.columns import effective_types, gist_of_types
from pipeline.runs.console import describe_choice, describe_members
from pipeline.runs.observer import RunResults
from trainer_module.errors import counted
from trainer_module.settings.model import NETWORK_MEMBER


def describe_perfection(metric: str, value: float, strongest: Strength | None) -> str:
    """Returns a note with possible causes of a metric that is nearly perfect."""
    causes = (
        f"{metric} {value:.4g} is nearly perfect: the task may be easy, but the cause may also "
        "be label leakage, or rows that are both in train and in eval"
    )
    if strongest is None:
        return causes
    column = json.dumps(strongest.column, ensure_ascii=False)
    return f"{causes}; of the undeclared columns, {column} predicts the label best ({strongest})"


class ArtifactResults(ArtifactReader, RunResults):
    """A reader of components' results from their artifacts, as soon as a component has ended."""

    def __init__(
        self,
        connection: metadata_store_pb2.ConnectionConfig,
        config: PipelineConfig,
        event_log: EventLog,
    ):
        """Stores the arguments; reads nothing.

        Args:
          event_log: the event log of the pipeline, with the metrics of pushed models.
        """
        super().__init__(connection, config.criteria)
        self._config = config
        self._event_log = event_log

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds a component's results to the summary, as `RunResults` describes."""
        if execution is not None and state.has_result:
            self.add(component, execution)
        readers: dict[str, Callable[[RunSummary], str]] = {
            ComponentId.EXAMPLE_GEN: self._read_notes,
            ComponentId.STATISTICS_GEN: self._read_statistics,
            ComponentId.SCHEMA_GEN: self._read_columns,
            ComponentId.EXAMPLE_VALIDATOR: self._read_anomalies,
            ComponentId.TUNER: self._read_tuning,
            ComponentId.TRAINER: self._read_training,
            ComponentId.EVALUATOR: self._read_evaluation,
            ComponentId.INFRA_VALIDATOR: self._read_certificate,
            ComponentId.OPTIMIZER: self._read_variants,
            ComponentId.PUSHER: self._read_push,
        }
        detail = readers[component](summary) if component in readers else ""
        if not state.has_result:
            return state, detail
        reason = "the model is not blessed"
        if component == ComponentId.PUSHER and not summary.pushed:
            if summary.waiting is not None:
                reason = summary.waiting.status.value
            return State.SKIPPED, detail or reason
        if component == ComponentId.INFRA_VALIDATOR and not detail:
            if summary.blessed:
                reason = "the model has no interface description"
            return State.SKIPPED, reason
        return state, detail

    def _read_notes(self, summary: RunSummary) -> str:
        notes = self.notes()
        summary.notes += notes
        return gist(notes)

    def _read_statistics(self, summary: RunSummary) -> str:
        summary.examples = self.examples_per_split()
        return ", ".join(f"{split} {n:,}" for split, n in summary.examples.items())

    def _read_columns(self, summary: RunSummary) -> str:
        chosen = self.column_choices()
        if not chosen:
            return ""
        types = effective_types(self._config.features, self._config.no_features, chosen)
        summary.columns = {
            name: ColumnSummary(settings=choice.settings, reason=choice.reason)
            for name, choice in types.items()
        }
        return gist_of_types(types)

    def _read_anomalies(self, summary: RunSummary) -> str:
        anomalies = self.anomalies()
        summary.anomalies = [str(anomaly) for anomaly in anomalies if not anomaly.is_drift]
        summary.drift = [str(anomaly) for anomaly in anomalies if anomaly.is_drift]
        summary.notes += show_findings(self.column_review())
        return gist([str(anomaly) for anomaly in anomalies])

    def _read_tuning(self, summary: RunSummary) -> str:
        tuning = summary.tuning = self.tuning()
        if not tuning:
            return ""
        trials = tuning["trials"]
        if tuning["best"] is None:
            return f"{counted(len(trials), 'trial')}; the config is not changed"
        (best,) = [trial for trial in trials if trial["number"] == tuning["best"]]
        if tuning.get("searches_members"):
            summary.notes.append(describe_members(best))
        elif best is not trials[0]:
            summary.notes.append(describe_choice(trials[0], best))
        result = f"trial {best['number']} has {tuning['objective']} {best['value']:.4g}"
        return f"{counted(len(trials), 'trial')}; {result}"

    def _read_training(self, summary: RunSummary) -> str:
        training = summary.training = self.training()
        if not training:
            return ""
        summary.strategy = training["strategy"]
        summary.replicas = training["replicas"]
        replicas = counted(training["replicas"], "replica")
        if training["workers"] > 1:
            replicas = f"{counted(training['workers'], 'worker')}, {replicas}"
        length = f"{counted(training['epochs'], 'epoch')}, best {training['best_epoch']}"
        members = training.get("members", {})
        if members and NETWORK_MEMBER not in members:
            return f"{counted(len(members), 'member')}; {training['strategy']}, {replicas}"
        if not training["epochs"]:
            length = "published weights, not trained"
        if "trees" in training:
            length = counted(training["trees"], "tree")
        if "sparsity" in training:
            length += f"; {training['sparsity']['overall']:.0%} of the weights are zero"
        pace = f"{training['examples_per_second']:,.0f} examples/s"
        return f"{length}; {training['strategy']}, {replicas}; {pace}"

    def _read_evaluation(self, summary: RunSummary) -> str:
        evaluation = self.evaluation()
        if evaluation is None:
            return ""
        summary.blessed, summary.reason = evaluation.blessed, evaluation.reason
        summary.metrics = evaluation.metrics
        summary.notes += evaluation.notes
        if (perfect := evaluation.nearly_perfect) is not None:
            value, strongest = evaluation.metrics[perfect].value, self.column_review().strongest
            summary.notes.append(describe_perfection(perfect, value, strongest))
        summary.slices = evaluation.slices
        if mistakes := self.mistakes():
            summary.notes.append(mistakes)
        if not evaluation.blessed and self._config.family.has_label:
            summary.reason = "; ".join(filter(None, (evaluation.reason, self._data_fault())))
        return "blessed" if evaluation.blessed else "not blessed"

    def _data_fault(self) -> str:
        """Returns the evidence that the data caused the failure, or an empty string."""
        # The import is here, because this module imports TFMA.
        from pipeline.runs.data_fault import DataFault

        kind, on_drift = span_kind(self._config.data), self._config.drift.on_drift
        return DataFault(self, self._criteria, kind, on_drift, self._event_log).describe()

    def _read_certificate(self, summary: RunSummary) -> str:
        certificate = self.certificate()
        if not certificate:
            return ""
        summary.certificate = CertificateSummary.model_validate(certificate)
        summary.notes += [f"certificate: {note}" for note in certificate["notes"]]
        if certificate["failure"]:
            summary.blessed, summary.reason = False, certificate["failure"]
            return "the answers of the interfaces differ"
        return summary.certificate.gist

    def _read_variants(self, summary: RunSummary) -> str:
        report = self.variants()
        if report is None:
            return ""
        summary.variants = report.model_dump(mode="json", exclude={"made_from"})
        if report.skipped:
            return f"no variants: {report.skipped}"
        count = counted(len(report.variants), "variant")
        return f"{count}; accepted: {', '.join(report.accepted) or 'none'}"

    def _read_push(self, summary: RunSummary) -> str:
        models = self.outputs(ComponentId.TRAINER, "model")
        if any(model.get_int_custom_property(WITHDRAWN_PROPERTY) for model in models):
            summary.reason = "the model was withdrawn"
            return summary.reason
        report = self.variants()
        if report is not None and report.unmet:
            summary.reason = "; ".join(report.unmet)
            return "a required variant is rejected"
        pushed = self.pushed_version()
        if pushed is None:
            return ""
        summary.pushed = pushed.destination
        return ""
