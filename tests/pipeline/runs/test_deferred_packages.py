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


def test_a_module_is_imported_without_its_package(package: Path) -> None:
    defer_package(package.name)
    small = importlib.import_module("heavy_package.small")
    assert small.NAME == "small"
    assert small.heavy_package is sys.modules["heavy_package"]
    assert not is_loaded()


def test_a_name_of_the_package_has_it_executed_once(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defer_package(package.name)
    small = importlib.import_module("heavy_package.small")
    heavy = importlib.import_module("heavy_package")
    assert heavy.SIZE == 10
    assert is_loaded()
    assert heavy is sys.modules["heavy_package"]
    assert heavy.small is small, "what was imported before stays"
    monkeypatch.setattr(heavy, "SIZE", 11)
    assert importlib.import_module("heavy_package").SIZE == 11


def test_a_module_that_is_asked_for_as_a_name_is_imported_alone(package: Path) -> None:
    defer_package(package.name)
    heavy = sys.modules["heavy_package"]
    assert heavy.small.NAME == "small"
    assert not is_loaded()
    assert heavy.small is importlib.import_module("heavy_package.small")


def test_what_another_package_adds_is_there_as_well(package: Path) -> None:
    adding = package.with_name("heavy_package_more")
    adding.mkdir()
    (adding / "__init__.py").write_text("import heavy_package\n\nheavy_package.MORE = 1\n")
    defer_package(package.name, extended_by=adding.name)
    defer_package(adding.name)
    heavy = sys.modules["heavy_package"]
    assert heavy.SIZE == 10
    assert heavy.MORE == 1
    del sys.modules[adding.name]


def test_what_it_does_not_have_it_does_not_have(package: Path) -> None:
    defer_package(package.name)
    heavy = sys.modules["heavy_package"]
    assert not hasattr(heavy, "__wrapped__")
    assert not is_loaded(), "who looks at all modules executes none"
    with pytest.raises(AttributeError, match=r"heavy_package.*weight"):
        _ = heavy.weight
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("heavy_package.weight")


def test_a_package_that_fails_says_so_to_whoever_asks(package: Path) -> None:
    (package / "__init__.py").write_text("raise OSError('broken')\n")
    defer_package(package.name)
    heavy = sys.modules["heavy_package"]
    with pytest.raises(OSError, match="broken"):
        _ = heavy.SIZE


def test_what_is_imported_or_not_installed_is_left_alone(package: Path) -> None:
    heavy = importlib.import_module("heavy_package")
    defer_package(package.name)
    assert sys.modules["heavy_package"] is heavy
    defer_package("no_such_package")
    assert "no_such_package" not in sys.modules
