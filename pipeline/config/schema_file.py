"""The file with the JSON Schema of configs, and the line by which a config names it to editors."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainer_module.errors import ConfigError

SCHEMA_FILE = "config.schema.json"
"""The usual name of the file."""
COMMENT = "The JSON Schema of Scopeline's configs"
"""The comment in the JSON Schema by which the file is recognised."""


def editor_line(file: Path = Path(SCHEMA_FILE), folder: Path = Path()) -> str:
    """Returns the first line of a config, by which editors find the JSON Schema.

    Args:
      file: the file with the JSON Schema.
    """
    return f"# yaml-language-server: $schema={Path(os.path.relpath(file, folder)).as_posix()}"


def check_replaceable(file: Path, force: bool) -> None:
    """Raises ConfigError if a file exists, is no JSON Schema of configs, and may not be replaced.

    Args:
      force: whether a file with other content may be replaced.
    """
    if file.exists() and not force and not _is_config_schema(file):
        raise ConfigError(
            f"{file} exists and is no JSON Schema of Scopeline's configs: add --force to replace it"
        )


def _is_config_schema(file: Path) -> bool:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("$comment") == COMMENT
