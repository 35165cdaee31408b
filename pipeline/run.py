"""One run of a pipeline on this machine: from a checked config to an exit code."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pipeline.config import PipelineConfig
from pipeline.data_location import locate_data
from pipeline.layout import Layout, new_run_id
from pipeline.lock import one_at_a_time
from pipeline.logs import captured
from pipeline.screen import Screen
from trainer_module.errors import InternalError, ScopelineError
from trainer_module.tf_config import read_tf_config


def run_pipeline(config: PipelineConfig, output: Path, verbose: bool = False) -> int:
    """Runs a pipeline and shows it on the screen.

    Args:
      config: a checked config.
      output: the output folder.
      verbose: whether everything that components say is shown as well.

    Returns:
      The exit code: 0 pushed, 1 a component failed, 2 the data is unusable, 3 not blessed.

    Raises:
      ConfigError: the output folder or TF_CONFIG cannot be used, or another run of the pipeline is
        under way.
      DataError: there is no data where the config says.
      InternalError: the run broke outside of its components.
    """
    read_tf_config(os.environ)  # Refused now if it cannot be used.
    layout = Layout.of(config, output)
    with one_at_a_time(layout):
        locate_data(config.data, layout)
        files = layout.run(new_run_id())
        files.root.mkdir(parents=True)
        with captured(files.log, verbose) as stream:
            screen = Screen(stream, verbose)
            screen.begin(f"{config.name}, run {files.root.name}")
            screen.started("starting TFX")
            try:
                # Imported only now: what needs no TensorFlow has been checked, and its chatter
                # goes to the log.
                from pipeline.execution import execute

                return execute(config, layout, files, screen)
            except ScopelineError:
                raise
            except Exception as error:
                logging.getLogger(__name__).exception("The run could not be executed")
                raise InternalError(
                    f"{type(error).__name__}: {error}; everything that was said: {files.log}"
                ) from error
            finally:
                screen.stop()
