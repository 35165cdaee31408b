"""The pages that follow from the code are current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pipeline.config.json_schema import config_schema
from pipeline.config.reference import config_reference

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("page", "make"),
    [("config.md", config_reference), ("config.schema.json", config_schema)],
)
def test_page_is_current(page: str, make) -> None:
    assert (ROOT / "docs" / page).read_text() == make(), "run `make docs`"


def test_schema_accepts_shipped_configs_and_refuses_broken_ones() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(config_schema()))
    for path in (ROOT / "configs").glob("*.yaml"):
        validator.validate(yaml.safe_load(path.read_text()))
    broken = yaml.safe_load((ROOT / "tests/fixtures/broken/keys_misspelt.yaml").read_text())
    assert not validator.is_valid(broken)


def test_a_default_is_written_as_a_config_would_write_it() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(config_schema())
    sections = [schema, *schema["$defs"].values()]
    keys = [key for section in sections for key in section.get("properties", {}).values()]
    defaults = [key for key in keys if "default" in key]
    assert len(defaults) > 50
    for key in defaults:
        whole = {**key, "$defs": schema["$defs"]}
        jsonschema.Draft202012Validator(whole).validate(key["default"])
