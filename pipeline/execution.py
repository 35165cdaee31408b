"""Executes a pipeline's components and records what becomes of each."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2

from components.example_gen.paths import is_remote
from components.trainer.options import TrainerOptions
from components.versions import push_version
from pipeline.config import PipelineConfig
from pipeline.failures import explain
from pipeline.fingerprint import own_sources
from pipeline.graph import create_pipeline
from pipeline.layout import Layout, RunLayout
from pipeline.local import LocalRunner
from pipeline.results import RunResults
from pipeline.screen import Screen, shown
from pipeline.summary import (
    ComponentSummary,
    ErrorSummary,
    MetricSummary,
    RunSummary,
    State,
    Status,
)
from trainer_module.progress import PROGRESS_LOGGER
from trainer_module.settings import TrainSettings
from trainer_module.strategies.automatic import check_available, choose_strategy
from trainer_module.tf_config import read_tf_config

logger = logging.getLogger(__name__)


def execute(config: PipelineConfig, layout: Layout, files: RunLayout, screen: Screen) -> int:
    """Runs the components, keeps `summary.json` current, and shows the outcome.

    Returns:
      The exit code.
    """
    pipeline = create_pipeline(config, layout)
    recorder = _Recorder(config, pipeline.metadata_connection_config, files, screen)
    progress = logging.getLogger(PROGRESS_LOGGER)
    progress.addHandler(screen)
    try:
        _prepare_training(config.train)
        LocalRunner(files.root.name, recorder).run(pipeline)
        error = None
    except (Exception, KeyboardInterrupt) as exception:
        logger.exception("The run ended early")
        error = exception
    finally:
        progress.removeHandler(screen)
    if error is None and not recorder.summary.components:
        # TFX's command line compiles a pipeline by a runner that runs nothing.
        shutil.rmtree(files.root)
        return 0
    recorder.conclude(error)
    screen.conclude(recorder.summary, _hints(recorder.summary, layout, files))
    return recorder.summary.status.exit_code


class _Recorder:
    """Watches the components: fills the summary, and tells the screen."""

    def __init__(
        self,
        config: PipelineConfig,
        connection: metadata_store_pb2.ConnectionConfig,
        files: RunLayout,
        screen: Screen,
    ) -> None:
        self._config = config
        self._files = files
        self._screen = screen
        self._results = RunResults(connection, config)
        self._began = time.monotonic()
        self._current: str | None = None
        self.summary = RunSummary(
            run_id=files.root.name,
            pipeline=config.name,
            started=datetime.now().astimezone().isoformat(timespec="seconds"),
            strategy=config.train.strategy.kind,
        )
        self.summary.write(files.summary)

    def started(self, component: str) -> None:
        """A component begins."""
        self._current = component
        self._screen.started(component)

    def finished(self, component: str, state: State, seconds: float, execution: int | None) -> None:
        """A component ended: what it left is read at once."""
        if execution is not None and state is not State.FAILED:
            self._results.add(component, execution)
        detail = self._read(component)
        if component == "Pusher" and state is not State.FAILED and not self.summary.pushed:
            state, detail = State.SKIPPED, "the model is not blessed"
        self.summary.components.append(
            ComponentSummary(name=component, state=state, seconds=round(seconds, 3))
        )
        self.summary.seconds = round(time.monotonic() - self._began, 3)
        self.summary.write(self._files.summary)
        self._screen.finished(component, state, seconds, detail)

    def _read(self, component: str) -> str:
        """Adds a component's results to the summary; gives the gist of them."""
        reader = {
            "StatisticsGen": self._read_statistics,
            "ExampleValidator": self._read_anomalies,
            "Trainer": self._read_training,
            "Evaluator": self._read_evaluation,
            "Pusher": self._read_push,
        }.get(component)
        return reader() if reader else ""

    def _read_statistics(self) -> str:
        self.summary.examples = self._results.examples_per_split()
        return ", ".join(f"{split} {n:,}" for split, n in self.summary.examples.items())

    def _read_anomalies(self) -> str:
        self.summary.anomalies = [str(anomaly) for anomaly in self._results.anomalies()]
        if not self.summary.anomalies:
            return ""
        more = len(self.summary.anomalies) - 1
        return f"warning: {self.summary.anomalies[0]}" + (f" (and {more} more)" if more else "")

    def _read_training(self) -> str:
        training = self.summary.training = self._results.training()
        if not training:
            return ""
        self.summary.strategy = training["strategy"]
        self.summary.replicas = training["replicas"]
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
        self.summary.blessed, self.summary.reason = evaluation.blessed, evaluation.reason
        self.summary.metrics = {
            m.name: MetricSummary(value=m.value, in_service=m.in_service, needs=m.needs, ok=m.ok)
            for m in evaluation.metrics
        }
        self.summary.slices = evaluation.slices
        return "blessed" if evaluation.blessed else "not blessed"

    def _read_push(self) -> str:
        pushed = self._results.pushed_version()
        if pushed is None:
            return ""
        self.summary.pushed = pushed.destination
        if is_remote(pushed.destination) or Path(pushed.destination).exists():
            return ""
        # A cached push whose version was deleted since: Pusher's own copy serves again.
        push_version(pushed.archive, Path(pushed.destination))
        return "the served version was gone; pushed again"

    def conclude(self, error: BaseException | None) -> None:
        """Settles the status, from what was pushed or from what went wrong."""
        if error is None:
            pushed = self.summary.pushed is not None
            self.summary.status = Status.PUSHED if pushed else Status.NOT_BLESSED
        else:
            self.summary.status, message = explain(error, own_sources(self._config))
            self.summary.error = ErrorSummary(
                component=self._current, message=message, log=str(self._files.log)
            )
        self.summary.seconds = round(time.monotonic() - self._began, 3)
        self.summary.write(self._files.summary)


def _prepare_training(train: TrainSettings) -> None:
    """Finds out now what Trainer would stumble over, and passes it what looks after training.

    Raises:
      ConfigError: TF_CONFIG cannot be used, or this machine lacks a device of the strategy.
    """
    check_available(choose_strategy(train, read_tf_config(os.environ)).strategy)
    os.environ.update(_trainer_options(train).to_environment())


def _trainer_options(train: TrainSettings) -> TrainerOptions:
    """What looks after a training but does not change it, and so stays out of its cache key."""
    cluster = train.cluster_or_default
    return TrainerOptions(
        launcher=cluster.launcher,
        start_timeout=cluster.start_timeout,
        retries=train.retries,
        backup_steps=train.backup_steps,
    )


def _hints(summary: RunSummary, layout: Layout, files: RunLayout) -> list[str]:
    """What to look at next."""
    hints = [f"summary: {shown(files.summary)}"]
    if summary.error is not None:
        hints = [f"everything it said: {shown(files.log)}"]
        if any(c.state is not State.FAILED for c in summary.components):
            hints.append("the next run goes on from the components that are done")
    elif summary.training:
        tensorboard = shown(Path(sys.executable).parent / "tensorboard")
        logs = shown(layout.pipeline_root / "Trainer")
        hints.append(f"learning curves: {tensorboard} --logdir {logs}")
    return hints
