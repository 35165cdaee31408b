"""The pipelines that a scheduler looks after, as the command line names them."""

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
    """A pipeline that a scheduler looks after."""

    name: str
    config_file: Path
    overrides: tuple[str, ...]
    output: Path
    verbose: bool = False
    """Whether its runs show everything that components say."""

    def load_config(self) -> PipelineConfig:
        """Loads the config as its file is now.

        Raises:
          ConfigError: it is bad or has no schedule.
        """
        return _load_scheduled(self.config_file, self.overrides)


def load_pipelines(
    config_files: Sequence[Path],
    overrides: Sequence[str],
    output: Path,
    verbose: bool = False,
    is_lenient: bool = False,
) -> list[ScheduledPipeline]:
    """Reads the names of the pipelines from their configs.

    Args:
      config_files: one per pipeline.
      overrides: changes of each config, `key=value`.
      output: where everything is written.
      verbose: whether runs show everything that components say.
      is_lenient: whether the config of a pipeline that has been looked after may be bad by now:
        then the look finds so, says since when, and goes on to the others.

    Raises:
      ConfigError: a config is bad or has no schedule, or two have one name.
    """
    found: dict[str, ScheduledPipeline] = {}
    for file in config_files:
        name = _name_of(file, overrides, output if is_lenient else None)
        if name in found:
            raise ConfigError(
                f"{file}: its name is {name!r}, as that of {found[name].config_file}; "
                "pipelines of one output folder have a name each"
            )
        found[name] = ScheduledPipeline(
            name, file.absolute(), tuple(overrides), output.resolve(), verbose
        )
    return list(found.values())


def _name_of(file: Path, overrides: Sequence[str], known_in: Path | None) -> str:
    try:
        return _load_scheduled(file, overrides).name
    except ConfigError:
        name = None if known_in is None or _is_good(file) else read_name(file, overrides)
        if known_in is None or name is None or not Layout(known_in, name).event_log.exists():
            raise
        return name


def _is_good(file: Path) -> bool:
    """Returns whether a config is one to schedule by itself, so that what is wrong is an
    override.
    """
    try:
        _load_scheduled(file, ())
    except ConfigError:
        return False
    return True


def _load_scheduled(file: Path, overrides: Sequence[str]) -> PipelineConfig:
    config = load_config(file, overrides)
    if config.schedule is None or not config.has_trigger:
        raise ConfigError(f"{file}: schedule: nothing ever sets it off; {TRIGGERS}")
    return config
