"""Another version of a library, as far as one of its functions goes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest

from trainer_module.compat.insides import Known
from trainer_module.errors import InternalError


def _other(*arguments: Any) -> Any:
    return arguments


def _put_other_code(patch: pytest.MonkeyPatch, module: str, path: str) -> None:
    parent, _, name = path.rpartition(".")
    owner = attrgetter(parent)(import_module(module)) if parent else import_module(module)
    if callable(getattr(owner, name)) or isinstance(getattr(owner, name), property):
        patch.setattr(owner, name, _other)
    else:
        patch.delattr(owner, name)


@pytest.fixture
def other_code() -> Callable[[pytest.MonkeyPatch, str, str], None]:
    """Puts other code in the place of a function, or takes away what is none."""
    return _put_other_code


@pytest.fixture
def refuses_others(monkeypatch: pytest.MonkeyPatch) -> Callable[[Known, Callable[[], Any]], None]:
    """Asserts that something refuses to be used with another version of any of its insides."""

    def check(known: Known, use: Callable[[], Any]) -> None:
        for module, prints in known.items():
            for path in prints:
                with monkeypatch.context() as patch:
                    _put_other_code(patch, module, path)
                    with pytest.raises(InternalError, match="cannot be relied on") as refused:
                        use()
                assert f"{module}:{path}" in str(refused.value)

    return check
