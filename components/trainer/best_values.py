"""The file of the best values of a search, which the Tuner writes and the Trainer reads."""

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
"""The file of the best values in the HyperParameters artifact; TFX's own Tuner uses this name."""

VALUES_KEY, SEARCH_KEY = "values", "search"


def write_best(folder: str, values: Mapping[str, Any], search: str) -> None:
    """Writes the best values into the folder of a HyperParameters artifact.

    Args:
      search: the fingerprint of the search space and the code, which does not depend on the data.
    """
    content = {VALUES_KEY: dict(values), SEARCH_KEY: search}
    write_text(json.dumps(content), folder, BEST_FILE)


def read_best(folder: str) -> dict[str, Any]:
    """Returns the best values in the folder of an artifact, by config key."""
    return dict(_read(posixpath.join(folder, BEST_FILE))[VALUES_KEY])


def find_earlier(folder: str, search: str) -> str | None:
    """Returns the folder with the result of the latest search of the same space, or None.

    Args:
      folder: the folder of this execution's artifact; its parent has the folders of all executions.
    """
    earlier = fileio.glob(posixpath.join(posixpath.dirname(folder.rstrip("/")), "*", BEST_FILE))
    folders = [posixpath.dirname(path) for path in earlier if _read(path).get(SEARCH_KEY) == search]
    # The name of a folder is the id of its execution.
    return max(folders, key=lambda path: (len(path), path), default=None)


def _read(path: str) -> dict[str, Any]:
    with fileio.open(path, "r") as file:
        return dict(json.loads(file.read()))


def add_best(
    input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the Trainer's execution properties with the best values in the settings.

    If there was no search, the execution properties are unchanged.
    """
    if not input_dict.get(HYPERPARAMETERS_KEY):
        return dict(exec_properties)
    folder = artifact_utils.get_single_uri(input_dict[HYPERPARAMETERS_KEY])
    custom_config = apply_best(json.loads(exec_properties[CUSTOM_CONFIG_KEY]), folder)
    return {**exec_properties, CUSTOM_CONFIG_KEY: json.dumps(custom_config)}


def apply_best(custom_config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Returns a `custom_config` whose settings contain the best values in an artifact's folder."""
    changed = candidate(custom_config[SETTINGS_KEY], read_best(folder))
    return {**custom_config, SETTINGS_KEY: changed}
