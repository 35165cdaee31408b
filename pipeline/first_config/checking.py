"""The check of a proposed config by the rules and the checks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config.loading import check_rules
from pipeline.config.sections.data import NO_SPAN
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import File, locate_data
from pipeline.data.first_look import check_local_data
from pipeline.data.ingestion import reading_settings
from pipeline.data.spans import Span, whole_data
from pipeline.first_config.beginnings import Beginning, original_names
from pipeline.layout import Layout
from trainer_module.errors import ConfigError

_OUTPUT = Path("output")


def check_proposal(config: Mapping[str, Any], beginning: Beginning | None = None) -> None:
    """Checks a config and its data.

    Args:
      config: the config as a mapping.
      beginning: the first rows of a table, which are checked in place of all rows; None for
        pictures, which are checked as a run checks them.

    Raises:
      ConfigError: a rule of the config is broken.
      DataError: a run could not use the data.
    """
    loaded = PipelineConfig.model_validate(config)
    # The path of a table that `init` writes does not exist yet.
    problems = [problem for problem in check_rules(loaded) if problem.path != "data.path"]
    if problems:
        raise ConfigError("; ".join(map(str, problems)))
    layout = Layout.of(loaded.name, loaded.push, _OUTPUT)
    settings = reading_settings(loaded, layout)
    if beginning is None:
        location = locate_data(loaded.data, layout)
        location.check()
        check_local_data(settings, loaded.all_named_columns, whole_data(location, loaded.data))
        return
    folder = str(Path(beginning.originals[0]).absolute().parent)
    pictures = {name: base or folder for name, base in settings.pictures.items()}
    files = tuple(map(_file, beginning.files))
    with original_names(beginning.files, beginning.originals):
        check_local_data(
            settings.model_copy(update={"pictures": pictures, "schema_file": ""}),
            loaded.all_named_columns,
            Span(NO_SPAN, None, files),
        )


def _file(path: str) -> File:
    state = Path(path).stat()
    return File(path, state.st_size, state.st_mtime)
