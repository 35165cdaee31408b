"""A library that is not the one that our code was written for stays as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
import tensorflow_transform.beam  # noqa: F401 - so that there is something to change
import tfx.components.transform.executor
import tfx.components.util.tfxio_utils  # noqa: F401

from components.compat import speed

NAMES = [change.function for change in speed.CHANGES]


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The functions that would have changed a library."""
    speed._warn.cache_clear()
    found: list[str] = []
    modules = {change.function.split(".")[0] for change in speed.CHANGES}
    for name in modules:
        module = import_module(f"components.compat.{name}")
        for change in speed.CHANGES:
            if change.function.startswith(f"{name}."):
                function = change.function.split(".")[1]
                monkeypatch.setattr(module, function, lambda f=change.function: found.append(f))
    yield found
    speed._warn.cache_clear()


def test_libraries_of_the_lock_file_are_known(applied: list[str]) -> None:
    speed.speed_up()
    assert applied == NAMES


@pytest.mark.parametrize("change", speed.CHANGES, ids=NAMES)
def test_changed_library_is_left_as_it_is_and_logged(
    change: speed.Change,
    applied: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for module, prints in change.known.items():
        for path in prints:
            for is_gone in (True, False):
                with monkeypatch.context() as patch:
                    patch.setattr(speed, "CHANGES", (change,))
                    _take_away(patch, module, path, is_gone)
                    applied.clear()
                    speed._warn.cache_clear()
                    with caplog.at_level(logging.WARNING):
                        speed.speed_up()
                        speed.speed_up()
                assert change.function not in applied, path
                lines = [line for line in caplog.messages if change.function in line]
                assert len(lines) == 1, "it is logged once"
                assert f"{module}:{path}" in lines[0]
                caplog.clear()


def _take_away(patch: pytest.MonkeyPatch, module: str, path: str, is_gone: bool) -> None:
    """Renames an inside, or puts another in its place, as another version may."""
    parent, _, name = path.rpartition(".")
    owner = attrgetter(parent)(import_module(module)) if parent else import_module(module)
    if is_gone:
        patch.setattr(owner, f"{name}_renamed", getattr(owner, name), raising=False)
        patch.delattr(owner, name)
    else:
        other = type(name, (), {"method": _other}) if isinstance(getattr(owner, name), type) else 0
        patch.setattr(owner, name, other or _other)


def _other(*arguments: Any) -> Any:
    return arguments
