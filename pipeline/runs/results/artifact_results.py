"""Puts what components left behind into a run's summary, as soon as each has ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

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
    MetricSummary,
    RunSummary,
    State,
)
from pipeline.runs.columns import effective_types, gist_of_types
from pipeline.runs.console import why_not_the_first
from pipeline.runs.results.artifact_reader import ArtifactReader, gist
from trainer_module.errors import counted
from trainer_module.settings import Feature


def describe_perfection(metric: str, value: float, strongest: Strength | None) -> str:
    """What to look at where a metric is nearly as good as it can be."""
    causes = (
        f"{metric} {value:.4g} is nearly perfect: some data is that easy, but a column that is "
        "known only after the label, or rows that are in train and in eval, give the same"
    )
    if strongest is None:
        return causes
    column = json.dumps(strongest.column, ensure_ascii=False)
    return (
        f"{causes}; of the columns that the config does not declare, {column} predicts the label "
        f"best ({strongest})"
    )


class ArtifactResults(ArtifactReader):
    """Reads the results of each component from its artifacts as soon as it has ended."""

    def __init__(
        self,
        connection: metadata_store_pb2.ConnectionConfig,
        config: PipelineConfig,
        event_log: EventLog,
    ):
        """Reads nothing yet.

        Args:
          connection: of the metadata store.
          config: of the run.
          event_log: of the pipeline, which knows what models in service were like.
        """
        super().__init__(connection, config.criteria)
        self._config = config
        self._event_log = event_log

    def read(
        self, component: str, state: State, execution: int | None, summary: RunSummary
    ) -> tuple[State, str]:
        """Adds a component's results to the summary, as `RunResults` says."""
        if execution is not None and state is not State.FAILED:
            self.add(component, execution)
        config = self._config
        builder = SummaryBuilder(config.features, config.no_features, self, summary)
        found = builder.of(component, state)
        is_refused = component == ComponentId.EVALUATOR and summary.blessed is False
        if is_refused and config.family.has_label:
            # It imports TFMA as well, like the evaluation that was read.
            from pipeline.runs.results.suspicion import DataSuspicion

            kind, on_drift = span_kind(self._config.data), self._config.drift.on_drift
            suspicion = DataSuspicion(
                self, self._criteria, kind, on_drift, self._event_log
            ).in_words()
            summary.reason = "; ".join(filter(None, (summary.reason, suspicion)))
        return found


class SummaryBuilder:
    """Reads what components left behind into a summary."""

    def __init__(
        self,
        features: Mapping[str, Feature],
        no_features: Collection[str],
        reader: ArtifactReader,
        summary: RunSummary,
    ) -> None:
        """Reads nothing yet.

        Args:
          features: what the config says of columns.
          no_features: the columns that are none.
          reader: of the run, as far as it came.
          summary: is filled.
        """
        self._features, self._no_features = features, no_features
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
        if component == ComponentId.INFRA_VALIDATOR and not detail and state is not State.FAILED:
            is_blessed = self._summary.blessed
            why = (
                "the model does not say what it takes" if is_blessed else "the model is not blessed"
            )
            return State.SKIPPED, why
        return state, detail

    def _read(self, component: str) -> str:
        readers: dict[str, Callable[[], str]] = {
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
        return readers[component]() if component in readers else ""

    def _read_notes(self) -> str:
        notes = self._reader.notes()
        self._summary.notes += notes
        return gist(notes)

    def _read_statistics(self) -> str:
        self._summary.examples = self._reader.examples_per_split()
        return ", ".join(f"{split} {n:,}" for split, n in self._summary.examples.items())

    def _read_columns(self) -> str:
        chosen = self._reader.column_choices()
        if not chosen:
            return ""
        types = effective_types(self._features, self._no_features, chosen)
        self._summary.columns = {
            name: ColumnSummary(settings=choice.settings, reason=choice.reason)
            for name, choice in types.items()
        }
        return gist_of_types(types)

    def _read_anomalies(self) -> str:
        anomalies = self._reader.anomalies()
        self._summary.anomalies = [str(anomaly) for anomaly in anomalies if not anomaly.is_drift]
        self._summary.drift = [str(anomaly) for anomaly in anomalies if anomaly.is_drift]
        self._summary.notes += show_findings(self._reader.column_review())
        return gist([str(anomaly) for anomaly in anomalies])

    def _read_tuning(self) -> str:
        tuning = self._summary.tuning = self._reader.tuning()
        if not tuning:
            return ""
        trials = tuning["trials"]
        (best,) = [trial for trial in trials if trial["number"] == tuning["best"]]
        if best is not trials[0]:
            self._summary.notes.append(why_not_the_first(trials[0], best))
        of = f"{tuning['objective']} {best['value']:.4g}, of trial {best['number']}"
        return f"{counted(len(trials), 'trial')}; {of}"

    def _read_training(self) -> str:
        training = self._summary.training = self._reader.training()
        if not training:
            return ""
        self._summary.strategy = training["strategy"]
        self._summary.replicas = training["replicas"]
        replicas = counted(training["replicas"], "replica")
        if training["workers"] > 1:
            replicas = f"{counted(training['workers'], 'worker')}, {replicas}"
        length = f"{counted(training['epochs'], 'epoch')}, best {training['best_epoch']}"
        if not training["epochs"]:
            length = "taken as it was published"
        if "trees" in training:
            length = counted(training["trees"], "tree")
        if "sparsity" in training:
            length += f"; {training['sparsity']['overall']:.0%} of the weights zero"
        pace = f"{training['examples_per_second']:,.0f} examples/s"
        return f"{length}; {training['strategy']}, {replicas}; {pace}"

    def _read_evaluation(self) -> str:
        evaluation = self._reader.evaluation()
        if evaluation is None:
            return ""
        self._summary.blessed, self._summary.reason = evaluation.blessed, evaluation.reason
        self._summary.metrics = {
            m.name: MetricSummary(
                value=m.value,
                in_service=m.in_service,
                needs=m.needs,
                ok=m.ok,
                interval=None if m.interval is None else m.interval.ends,
                difference=None if m.difference is None else m.difference.ends,
            )
            for m in evaluation.metrics
        }
        self._summary.notes += evaluation.notes
        if (perfect := evaluation.nearly_perfect) is not None:
            strongest = self._reader.column_review().strongest
            self._summary.notes.append(describe_perfection(perfect.name, perfect.value, strongest))
        self._summary.slices = evaluation.slices
        if mistakes := self._reader.mistakes():
            self._summary.notes.append(mistakes)
        return "blessed" if evaluation.blessed else "not blessed"

    def _read_certificate(self) -> str:
        certificate = self._reader.certificate()
        if not certificate:
            return ""
        self._summary.certificate = CertificateSummary.model_validate(certificate)
        self._summary.notes += [f"certificate: {note}" for note in certificate["notes"]]
        if certificate["failure"]:
            self._summary.blessed, self._summary.reason = False, certificate["failure"]
            return "the answers differ"
        return self._summary.certificate.gist

    def _read_variants(self) -> str:
        report = self._reader.variants()
        if report is None:
            return ""
        self._summary.variants = report.model_dump(mode="json", exclude={"made_from"})
        if report.skipped:
            return f"made none: {report.skipped}"
        of = counted(len(report.variants), "variant")
        return f"{of}; accepted: {', '.join(report.accepted) or 'none'}"

    def _read_push(self) -> str:
        models = self._reader.outputs(ComponentId.TRAINER, "model")
        if any(model.get_int_custom_property(WITHDRAWN_PROPERTY) for model in models):
            self._summary.reason = "the model was withdrawn"
            return self._summary.reason
        report = self._reader.variants()
        if report is not None and report.unmet:
            self._summary.reason = "; ".join(report.unmet)
            return "a required variant is refused"
        pushed = self._reader.pushed_version()
        if pushed is None:
            return ""
        self._summary.pushed = pushed.destination
        return ""
