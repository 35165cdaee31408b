"""The files of the user's code are found as Python would find them, whatever is in them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from pipeline.config.user_code import check_import_path, find_source, imported_sources


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_main_module_of_a_script_is_no_source(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    (folder / "says_main.py").write_text("import __main__\n")
    assert imported_sources("says_main") == [folder / "says_main.py"]
    (issue,) = check_import_path("model.kind", "__main__.build")
    assert "there is no module `__main__` in" in issue.message


def test_module_that_cannot_be_parsed_counts_with_what_it_holds(folder: Path) -> None:
    (folder / "uses_broken.py").write_text("import null_byte\n")
    (folder / "null_byte.py").write_text("x = '\0'\n")
    assert imported_sources("uses_broken") == [folder / "uses_broken.py", folder / "null_byte.py"]


def test_package_goes_before_a_module_of_its_name(folder: Path) -> None:
    (folder / "twofold").mkdir()
    for file in ("twofold.py", "twofold/__init__.py"):
        (folder / file).touch()
    assert find_source("twofold") == Path(str(importlib.import_module("twofold").__file__))
