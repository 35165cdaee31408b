"""Adds the column types that a schema stores to the `custom_config` of a component."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.types import artifact_utils
from tfx.types.standard_component_specs import CUSTOM_CONFIG_KEY, SCHEMA_KEY

from components.column_types.choice import with_choices
from components.schema_reader import read_schema_artifact


def add_choices(
    input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the execution properties with the schema's choices added to `custom_config`.

    If the component has no input `schema`, the properties are returned unchanged.
    """
    if SCHEMA_KEY not in input_dict:
        return dict(exec_properties)
    custom_config = json.loads(exec_properties[CUSTOM_CONFIG_KEY])
    folder = artifact_utils.get_single_uri(input_dict[SCHEMA_KEY])
    chosen = complete(custom_config, folder)
    return {**exec_properties, CUSTOM_CONFIG_KEY: json.dumps(chosen)}


def complete(custom_config: Mapping[str, Any], schema_folder: str) -> dict[str, Any]:
    """Returns a `custom_config` with the choices of the schema in an artifact's folder added."""
    return with_choices(custom_config, read_schema_artifact(schema_folder))
