"""The reference of the Python API is current, and lists the names that pages import."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.api_reference import PAGE, api_reference, find_definition

ROOT = Path(__file__).parents[2]
OURS = r"^ *from ((?:trainer_module|components|pipeline)[\w.]*) import (\w+(?:, \w+)*)$"
CONSTANTS = {"FAMILIES", "TASKS"}


def test_reference_of_the_api_is_current() -> None:
    assert (ROOT / "docs/api.md").read_text() == api_reference(), "run make docs"


def test_reference_lists_the_names_that_examples_import() -> None:
    listed = {
        (module, name) for modules in PAGE.values() for module, names in modules for name in names
    }
    for page in sorted((ROOT / "docs").glob("*.md")):
        for module, names in re.findall(OURS, page.read_text(), re.MULTILINE):
            for name in set(names.split(", ")) - CONSTANTS - {"persistent"}:
                assert (module, name) in listed, f"{page.name} imports {name}"


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(LookupError, match="Probem"):
        find_definition("trainer_module.problem", "Probem")
