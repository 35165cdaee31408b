"""`local_runner.py serve`: a pushed model behind HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.serving.server.options import ServeOptions, check_options, read_key
from pipeline.serving.versions import check_model, find_version
from trainer_module.errors import ConfigError


def served_model(
    config: PipelineConfig | None, output: Path, model: Path | None, name: str | None
) -> tuple[str, Path]:
    """The name of a model, and the folder of its versions.

    Args:
      config: checked, if there is one.
      output: the output folder.
      model: a folder of versions, or one of them; else it is the config's.
      name: of the model; else the config's, or the folder's.

    Raises:
      ConfigError: there is no version.
    """
    if model is not None:
        folder = check_model(model).resolve().parent
        return name or (config.name if config else folder.name), folder
    if config is None:
        raise ConfigError("give --config FILE, or --model DIR with pushed versions.")
    serving = Layout.of(config, output).serving
    find_version(serving, None)
    return name or config.name, Path(serving)


def serve_model(options: ServeOptions, is_insecure: bool) -> None:
    """Serves until a signal comes.

    Raises:
      ConfigError: anybody could ask the model, a file is not there, or the port is taken.
    """
    options = replace(options, key=read_key())
    check_options(options, is_insecure)
    from pipeline.serving.server.process import serve

    serve(options)
