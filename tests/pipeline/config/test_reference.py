"""The pages that follow from the code are current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pipeline.config.reference import config_reference, config_schema

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
