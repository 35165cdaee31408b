"""The best values of a search, passed from Tuner to Trainer."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.standard_component_specs import CUSTOM_CONFIG_KEY, HYPERPARAMETERS_KEY

from components.copying import write_text
from trainer_module.settings import SETTINGS_KEY
from trainer_module.tuning.space import candidate

BEST_FILE = "best_hyperparameters.txt"
"""The file of the best values in their artifact, named as by TFX's own Tuner."""

VALUES_KEY, SEARCH_KEY = "values", "search"


def write_best(folder: str, values: Mapping[str, Any], search: str) -> None:
    """Writes the best values into the folder of their artifact.

    Args:
      folder: an existing folder.
      values: the values by key.
      search: a key that searches of the same space share, whatever their data.
    """
    told = {VALUES_KEY: dict(values), SEARCH_KEY: search}
    write_text(json.dumps(told), folder, BEST_FILE)


def read_best(folder: str) -> dict[str, Any]:
    """Returns the values in the folder of an artifact, by key."""
    return dict(_read(posixpath.join(folder, BEST_FILE))[VALUES_KEY])


def find_earlier(folder: str, search: str) -> str | None:
    """Returns the folder with the values of the last search of the same space, if there is one.

    Args:
      folder: the folder of this execution's artifact, which lies beside those of earlier ones.
      search: the key of the search; see `write_best`.
    """
    earlier = fileio.glob(posixpath.join(posixpath.dirname(folder.rstrip("/")), "*", BEST_FILE))
    found = [posixpath.dirname(path) for path in earlier if _read(path).get(SEARCH_KEY) == search]
    # The folders are the numbers of executions.
    return max(found, key=lambda path: (len(path), path), default=None)


def _read(path: str) -> dict[str, Any]:
    with fileio.open(path, "r") as file:
        return dict(json.loads(file.read()))


def add_best(
    input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a training's execution properties with the best values of a search in the settings.

    Without a search they are unchanged.
    """
    if not input_dict.get(HYPERPARAMETERS_KEY):
        return dict(exec_properties)
    folder = artifact_utils.get_single_uri(input_dict[HYPERPARAMETERS_KEY])
    told = apply_best(json.loads(exec_properties[CUSTOM_CONFIG_KEY]), folder)
    return {**exec_properties, CUSTOM_CONFIG_KEY: json.dumps(told)}


def apply_best(custom_config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Returns a `custom_config` with the best values in the folder of an artifact."""
    changed = candidate(custom_config[SETTINGS_KEY], read_best(folder))
    return {**custom_config, SETTINGS_KEY: changed}
