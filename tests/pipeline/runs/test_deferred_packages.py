"""Packages that are executed only once somebody asks for a name of theirs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.runs.imports import defer_package

INIT = "from heavy_package.large import SIZE\nfrom heavy_package import small\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that imports a large module, and a small one that needs nothing."""
    folder = tmp_path / "heavy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "large.py").write_text("SIZE = 10\n")
    (folder / "small.py").write_text("import heavy_package\n\nNAME = 'small'\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def is_loaded() -> bool:
    return "heavy_package.large" in sys.modules


def test_deferred_package_is_executed_once(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defer_package(package.name)
    small = importlib.import_module("heavy_package.small")
    heavy = importlib.import_module("heavy_package")
    assert heavy.SIZE == 10
    assert is_loaded()
    assert heavy is sys.modules["heavy_package"]
    assert heavy.small is small, "what was imported before stays"
    monkeypatch.setattr(heavy, "SIZE", 11)
    assert importlib.import_module("heavy_package").SIZE == 11


def test_imported_or_missing_package_is_not_deferred(package: Path) -> None:
    heavy = importlib.import_module("heavy_package")
    defer_package(package.name)
    assert sys.modules["heavy_package"] is heavy
    defer_package("no_such_package")
    assert "no_such_package" not in sys.modules
