"""The pages that follow from the code are current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.config.json_schema import config_schema
from pipeline.config.reference import config_reference

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("page", "make"),
    [("docs/config.md", config_reference), ("configs/config.schema.json", config_schema)],
)
def test_page_is_current(page: str, make) -> None:
    assert (ROOT / page).read_text() == make(), "run `make docs`"


def test_default_is_written_in_config_syntax() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(config_schema())
    sections = [schema, *schema["$defs"].values()]
    keys = [key for section in sections for key in section.get("properties", {}).values()]
    defaults = [key for key in keys if "default" in key]
    assert len(defaults) > 50
    for key in defaults:
        whole = {**key, "$defs": schema["$defs"]}
        jsonschema.Draft202012Validator(whole).validate(key["default"])
