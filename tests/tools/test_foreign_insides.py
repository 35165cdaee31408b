"""The lint for uses of other libraries' internals finds them, and leaves public uses alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.foreign_insides import find_touches

IMPORTS = """import re
import sys

import library.public.module as theirs
from library import Base, helpers

from components import other
"""
TOUCHES = {
    "from library import _private": "import of library _private",
    "import importlib\nimportlib.import_module('tf_keras.src.engine')": (
        "import of tf_keras.src.engine"
    ),
    "import tensorflow as tf\ntf.python.eager": ".python",
    "def f(a):\n    return a.of._value()": "._value",
    "def f(a):\n    return getattr(a, '_value', None)": "getattr a '_value'",
    "theirs.function = len": "sets theirs.function",
    "same, count = theirs.inner, 1\nsame.function = len": "sets same.function",
    "class C(Base):\n    def _hook(self): ...": "overrides C._hook",
    "operator.attrgetter('public._value')": "operator.attrgetter 'public._value'",
    "mock.patch.object(theirs, 'function', len)": "mock.patch.object theirs 'function'",
    "del vars(Base)['method']": "sets vars(Base)['method']",
}
PUBLIC = [
    "theirs.public.function()",
    "class C(Base):\n    def hook(self): ...\n    def _own(self): ...\nC()._own()",
    "class C(Base):\n    def __init__(self):\n        self._own = 1\nC()._own",
    "other.value = 1",
    "helpers.x._hidden  # no inside: a tuple",
]


def touches(folder: Path, code: str, path: str = "components/room/file.py", **files: str) -> list:
    for name, text in {path: IMPORTS + code, **files}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return [found.use for found in find_touches(folder)]


@pytest.mark.parametrize("code", TOUCHES)
def test_use_of_internals_is_found_outside_compat(tmp_path: Path, code: str) -> None:
    assert TOUCHES[code] in touches(tmp_path / "room", code)
    assert touches(tmp_path / "compat", code, path="components/compat/file.py") == []


def test_public_and_own_names_are_left_alone(tmp_path: Path) -> None:
    for number, code in enumerate(PUBLIC):
        assert touches(tmp_path / str(number), code) == [], code
    own = {"pipeline/rows.py": "class Rows:\n    def __init__(self):\n        self._rows = []\n"}
    assert touches(tmp_path, "def f(a):\n    return a._rows", **own) == []
