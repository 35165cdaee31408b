"""Executes a pipeline's components and records what becomes of each."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

from pipeline.config import PipelineConfig
from pipeline.graph import create_ingestion, create_pipeline
from pipeline.ingestion import ingestion_fingerprint
from pipeline.journal import Journal
from pipeline.layout import Layout, RunLayout
from pipeline.ledger import Ledger
from pipeline.local import LocalRunner
from pipeline.metadata import connection_config
from pipeline.recorder import Recorder
from pipeline.request import RunRequest
from pipeline.schedule.spans import Window, whole_data
from pipeline.screen import Screen, shown
from pipeline.summary import RunSummary, State
from pipeline.training import prepare_training
from pipeline.versions.retention import delete_what_is_old
from pipeline.window import WindowReader, left_out, make_spans
from trainer_module.progress import PROGRESS_LOGGER

logger = logging.getLogger(__name__)


def execute(
    config: PipelineConfig,
    layout: Layout,
    files: RunLayout,
    screen: Screen,
    request: RunRequest,
    window: Window | None,
) -> int:
    """Runs the components, keeps `summary.json` current, and shows the outcome.

    Args:
      config: a checked config.
      layout: of the pipeline.
      files: of the run.
      screen: where people look.
      request: what the run is asked to do.
      window: the spans to train on, where the data comes in spans.

    Returns:
      The exit code.
    """
    ledger, run_id = Ledger(layout.ledger), files.root.name
    data = list(window.spans) if window else [whole_data(config.data, layout)]
    journal = Journal(ledger, config, run_id, data, request.because)
    ingestion = ingestion_fingerprint(config, layout)
    recorder = Recorder(
        config, connection_config(config, layout), files, screen, journal, window, ingestion
    )
    progress = logging.getLogger(PROGRESS_LOGGER)
    progress.addHandler(screen)
    try:
        prepare_training(config.train)
        spans = None
        if window is not None:
            reader = WindowReader(config, layout, ledger, journal, run_id)
            usable = [window.newest] if request.validate_only else reader.read(window, screen)
            spans = make_spans(usable, ledger)
            if not request.validate_only:
                recorder.summary.notes += left_out(window, usable)
        create = create_ingestion if request.validate_only else create_pipeline
        LocalRunner(run_id, recorder).run(create(config, layout, spans))
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
    delete_what_is_old(config, layout, ledger)
    screen.conclude(recorder.summary, _hints(recorder.summary, layout, files))
    return recorder.summary.status.exit_code


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
