"""Which places the lint for other libraries' insides finds, and which it leaves alone."""

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


def touches(folder: Path, code: str, path: str = "components/room/file.py", **files: str) -> list:
    for name, text in {path: IMPORTS + code, **files}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return [found.use for found in find_touches(folder)]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from library import _private", "import of library _private"),
        ("from library._private import public", "import of library._private public"),
        ("import library._private", "import of library._private"),
        ("from tensorflow.python.util import nest", "import of tensorflow.python.util nest"),
        ("from tf_keras import src", "import of tf_keras src"),
        (
            "import importlib\nimportlib.import_module('tf_keras.src.engine')",
            "import of tf_keras.src.engine",
        ),
        ("__import__('library._private')", "import of library._private"),
        ("import tf_keras as keras\nkeras.src.engine", ".src"),
        ("import tensorflow as tf\ntf.python.eager", ".python"),
        ("theirs.public._value", "._value"),
        ("re._cache", "._cache"),
        ("import tensorflow as tf\ntf.__internal__.autograph", ".__internal__"),
        ("def f(a):\n    return a.of._value()", "._value"),
        ("def f(a):\n    return getattr(a, '_value', None)", "getattr a '_value'"),
        ("def f(a):\n    setattr(a, '_value', 1)", "setattr a '_value'"),
        ("theirs.function = len", "sets theirs.function"),
        ("Base.method = len", "sets Base.method"),
        ("del theirs.function", "sets theirs.function"),
        ("theirs.count += 1", "sets theirs.count"),
        ("same: Any = theirs.inner\nsame.function = len", "sets same.function"),
        ("same, count = theirs.inner, 1\nsame.function = len", "sets same.function"),
        (
            "class Ours(Base): ...\nclass C(Ours[int]):\n    def _hook(self): ...",
            "overrides C._hook",
        ),
        ("setattr(theirs, name, len)", "setattr theirs name"),
        ("operator.attrgetter('public._value')", "operator.attrgetter 'public._value'"),
        ("methodcaller('_method')", "methodcaller '_method'"),
        ("mock.patch.object(theirs, 'function', len)", "mock.patch.object theirs 'function'"),
        ("patch.object(own, '_value', 1)", "patch.object own '_value'"),
        ("theirs.inner.__dict__['function'] = len", "sets theirs.inner.__dict__['function']"),
        ("del vars(Base)['method']", "sets vars(Base)['method']"),
        ("(same := theirs.inner).function\nsame.function = len", "sets same.function"),
        ("for same in (other, Base):\n    same.method = len", "sets same.method"),
        ("for same, n in [(Base, 1)]:\n    same.method = len", "sets same.method"),
        ("class C(Base):\n    def _hook(self): ...", "overrides C._hook"),
        (
            "class C(Base[int]):\n    async def _hook(self):\n        super()._hook()\nC()._hook()",
            "overrides C._hook",
        ),
    ],
)
def test_a_touch_is_found_outside_compat(tmp_path: Path, code: str, found: str) -> None:
    assert found in touches(tmp_path, code)
    for room in ("components/compat/file.py", "trainer_module/deep/compat/file.py"):
        (tmp_path / "components" / "room" / "file.py").unlink(missing_ok=True)
        assert touches(tmp_path, code, path=room) == []
        (tmp_path / room).unlink()


@pytest.mark.parametrize(
    "code",
    [
        "theirs.public.function()",
        "theirs.__version__",
        "class C(Base):\n    def hook(self): ...\n    def _own(self): ...\nC()._own()",
        "class C(Base):\n    def __init__(self):\n        self._own = 1\nC()._own",
        "other.value = 1",
        "attrgetter('public.value')",
        "patch.object(other, 'value', 1)",
        "vars(theirs)['function']",
        "theirs.registry['name'] = len",
        "for same in (other, 1):\n    same.value = 1",
        "class C(Base):\n    @theirs.validator('a')\n    def _hook(self): ...",
        "import importlib\nimportlib.import_module('library.public')",
        "helpers.x._hidden  # no inside: a tuple",
        "def f(a):\n    return getattr(a, 'public')",
    ],
)
def test_what_is_public_or_ours_is_left_alone(tmp_path: Path, code: str) -> None:
    assert touches(tmp_path, code) == []


def test_a_private_name_of_another_file_of_ours_is_ours(tmp_path: Path) -> None:
    code = "def f(a):\n    return a._rows"
    assert touches(tmp_path, code) == ["._rows"]
    own = {"pipeline/rows.py": "class Rows:\n    def __init__(self):\n        self._rows = []\n"}
    assert touches(tmp_path, code, **own) == []
