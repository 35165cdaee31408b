"""Loads the pipelines that the command line of a scheduler names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.loading import load_config, read_name
from pipeline.config.sections.schedule import TRIGGERS
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from trainer_module.errors import ConfigError


@dataclass(frozen=True)
class ScheduledPipeline:
    """A pipeline of a scheduler, with its config file."""

    name: str
    config_file: Path
    overrides: tuple[str, ...]
    output: Path
    verbose: bool = False
    """Whether runs show the output of components."""

    def load_config(self) -> PipelineConfig:
        """Loads the current config from its file.

        Raises:
          ConfigError: the config is invalid or has no schedule.
        """
        return _load_scheduled(self.config_file, self.overrides)


def load_pipelines(
    config_files: Sequence[Path],
    overrides: Sequence[str],
    output: Path,
    verbose: bool = False,
    is_lenient: bool = False,
) -> list[ScheduledPipeline]:
    """Returns the pipelines, with the names in their configs.

    Args:
      config_files: the config files, one per pipeline.
      overrides: `key=value` overrides of each config.
      verbose: whether runs show the output of components.
      is_lenient: whether the config of a pipeline with an event log may be invalid: the check then
        reports the problem, and continues with the other pipelines.

    Raises:
      ConfigError: a config is invalid or has no schedule, or two configs have the same name.
    """
    pipelines: dict[str, ScheduledPipeline] = {}
    for file in config_files:
        name = _name_of(file, overrides, output if is_lenient else None)
        if name in pipelines:
            raise ConfigError(
                f"{file}: the name {name!r} is also used in {pipelines[name].config_file}; "
                "pipelines of one output folder need different names"
            )
        pipelines[name] = ScheduledPipeline(
            name, file.absolute(), tuple(overrides), output.resolve(), verbose
        )
    return list(pipelines.values())


def _name_of(file: Path, overrides: Sequence[str], output: Path | None) -> str:
    """Returns the name in a config.

    If `output` has an event log of the pipeline, the config may be invalid, but not its overrides.
    """
    try:
        return _load_scheduled(file, overrides).name
    except ConfigError:
        name = None if output is None or _is_valid(file) else read_name(file, overrides)
        if output is None or name is None or not Layout(output, name).event_log.exists():
            raise
        return name


def _is_valid(file: Path) -> bool:
    """Returns whether a config is valid without overrides, so that an override is the problem."""
    try:
        _load_scheduled(file, ())
    except ConfigError:
        return False
    return True


def _load_scheduled(file: Path, overrides: Sequence[str]) -> PipelineConfig:
    config = load_config(file, overrides)
    if config.schedule is None or not config.has_trigger:
        raise ConfigError(f"{file}: schedule: the schedule has no trigger; {TRIGGERS}")
    return config
