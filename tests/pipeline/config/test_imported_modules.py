"""The files of the user's code are found as Python would find them, whatever is in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipeline.config.user_code import check_import_path, imported_sources


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
