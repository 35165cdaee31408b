"""What each component of a run found, as a summary has it and in one line."""

from __future__ import annotations

from pathlib import Path

from components.example_gen.paths import is_remote
from components.pusher.versions import WITHDRAWN_PROPERTY, push_version
from pipeline.config.settings import PipelineConfig
from pipeline.records.summary import MetricSummary, RunSummary, State
from pipeline.runs.artifact_reader import ArtifactReader


class SummaryBuilder:
    """Reads what components left behind into a summary."""

    def __init__(
        self, config: PipelineConfig, results: ArtifactReader, summary: RunSummary
    ) -> None:
        """Reads nothing yet.

        Args:
          config: of the run.
          results: of the run, as far as it came.
          summary: is filled.
        """
        self._config = config
        self._results = results
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
        if component == "Pusher" and state is not State.FAILED and not self._summary.pushed:
            return State.SKIPPED, detail or "the model is not blessed"
        return state, detail

    def _read(self, component: str) -> str:
        reader = {
            "StatisticsGen": self._read_statistics,
            "ExampleValidator": self._read_anomalies,
            "Trainer": self._read_training,
            "Evaluator": self._read_evaluation,
            "Pusher": self._read_push,
        }.get(component)
        return reader() if reader else ""

    def _read_statistics(self) -> str:
        self._summary.examples = self._results.examples_per_split()
        return ", ".join(f"{split} {n:,}" for split, n in self._summary.examples.items())

    def _read_anomalies(self) -> str:
        anomalies = self._results.anomalies()
        self._summary.anomalies = [str(anomaly) for anomaly in anomalies if not anomaly.is_drift]
        self._summary.drift = [str(anomaly) for anomaly in anomalies if anomaly.is_drift]
        if not anomalies:
            return ""
        more = len(anomalies) - 1
        return f"warning: {anomalies[0]}" + (f" (and {more} more)" if more else "")

    def _read_training(self) -> str:
        training = self._summary.training = self._results.training()
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
        evaluation = self._results.evaluation()
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
        models = self._results.outputs("Trainer", "model")
        if any(model.get_int_custom_property(WITHDRAWN_PROPERTY) for model in models):
            self._summary.reason = "the model was withdrawn"
            return self._summary.reason
        pushed = self._results.pushed_version()
        if pushed is None:
            return ""
        self._summary.pushed = pushed.destination
        if is_remote(pushed.destination) or Path(pushed.destination).exists():
            return ""
        # A cached push whose version was deleted since: Pusher's own copy serves again.
        push_version(pushed.archive, Path(pushed.destination))
        return "the served version was gone; pushed again"
