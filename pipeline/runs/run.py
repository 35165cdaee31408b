"""One run of a pipeline on this machine: from a checked config to an exit code."""

from __future__ import annotations

import logging
import os
from datetime import datetime
from pathlib import Path

from pipeline.config.settings import PipelineConfig
from pipeline.config.span_patterns import has_spans, is_dated, parse_span
from pipeline.data.location import locate_data
from pipeline.data.spans import Window, choose_window, list_spans
from pipeline.layout import Layout, new_run_id
from pipeline.lock import one_at_a_time
from pipeline.metadata.store import check_store
from pipeline.records.notify import check_secrets
from pipeline.runs.console import RunConsole
from pipeline.runs.logs import captured
from pipeline.runs.request import RunRequest
from trainer_module.errors import ConfigError, InternalError, ScopelineError
from trainer_module.tf_config import read_tf_config


def run_pipeline(
    config: PipelineConfig,
    output: Path,
    verbose: bool = False,
    request: RunRequest = RunRequest(),  # noqa: B008 - it does not change
) -> int:
    """Runs a pipeline and shows it on the screen.

    Args:
      config: a checked config.
      output: the output folder.
      verbose: whether everything that components say is shown as well.
      request: why, up to which span, and how far.

    Returns:
      The exit code: 0 pushed (or validated, if that was asked for), 1 a component failed, 2 the
      data is unusable, 3 not blessed.

    Raises:
      ConfigError: the output folder or TF_CONFIG cannot be used, or another run of the pipeline is
        under way.
      DataError: there is no data where the config says.
      InternalError: the run broke outside of its components.
    """
    read_tf_config(os.environ)  # Refused now if it cannot be used.
    if config.train.cluster_or_default.launcher != "local":
        raise ConfigError(
            "train.cluster.launcher: kubernetes starts pods for a pipeline on Kubeflow, see "
            "kubeflow_runner.py; to run it here: --set train.cluster.launcher=local"
        )
    check_secrets(config)
    layout = Layout.of(config, output)
    with one_at_a_time(layout):
        check_store(config, layout)
        window = find_window(config, layout, request)
        files = layout.run(new_run_id())
        files.root.mkdir(parents=True)
        with captured(files.log, verbose) as stream:
            console = RunConsole(stream, verbose)
            title = f"{config.name}, run {files.root.name}"
            console.begin(title if window is None else f"{title}, {window}")
            console.started("starting TFX")
            try:
                # Imported only now: what needs no TensorFlow has been checked, and its chatter
                # goes to the log.
                from pipeline.runs.execution import execute

                return execute(config, layout, files, console, request, window)
            except ScopelineError:
                raise
            except Exception as error:
                logging.getLogger(__name__).exception("The run could not be executed")
                raise InternalError(
                    f"{type(error).__name__}: {error}; everything that was said: {files.log}"
                ) from error
            finally:
                console.stop()


def find_window(config: PipelineConfig, layout: Layout, request: RunRequest) -> Window | None:
    """The spans to train on; None if the data does not come in spans.

    Raises:
      ConfigError: the span that is asked for is none.
      DataError: there is no data, or the window has a gap.
    """
    if not has_spans(config.data):
        locate_data(config.data, layout)
        return None
    through = None
    if request.through is not None:
        dated = is_dated(config.data)
        try:
            through = parse_span(request.through, dated)
        except ValueError:
            right = "a date, such as 2026-01-05" if dated else "a number"
            raise ConfigError(
                f"{request.through_name} {request.through}: the spans at data.path are {right}"
            ) from None
    spans = list_spans(config.data, layout)
    return choose_window(spans, config.schedule_or_default, datetime.now().astimezone(), through)
