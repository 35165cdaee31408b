"""Import helpers of a run: garbage collection, module paths and deferred packages.

TFX and TensorFlow make millions of objects. The collector would traverse them a dozen times while
they are imported, and repeatedly during a run: a fifth of the computing time of a run on a small
table.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType

from components.processes.local.process import module_path

YOUNG, MIDDLE, OLD = 20_000, 20, 20
"""The thresholds of the collector's three generations."""


def is_in_tfx_command_line() -> bool:
    """Returns whether TFX's own command line runs this process, which only compiles the
    pipeline.
    """
    return "tfx.tools.cli" in sys.modules


@contextmanager
def kept_imports() -> Iterator[None]:
    """Turns off garbage collection within the block, and freezes the objects that exist at its end.

    Processes that are forked afterwards share the memory of these objects, as nothing modifies it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        keep_imports()
        if was_enabled:
            gc.enable()


def keep_imports() -> None:
    """Freezes existing objects, and makes the collector run less often."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@contextmanager
def shared_module_path() -> Iterator[None]:
    """Makes interpreters that libraries start in the block find the modules of this process.

    Beam starts interpreters for its workers if `beam.args` requests several processes.
    """
    variables = module_path()
    earlier = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _DeferredPackage(ModuleType):
    """A package whose modules can be imported, and whose `__init__` is executed on first use."""

    def __getattr__(self, name: str) -> object:
        """Executes the package's `__init__`, and returns the attribute of a name."""
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        # Before the execution, which imports the package itself.
        object.__setattr__(self, "__class__", ModuleType)
        spec.loader.exec_module(self)
        adding = sys.modules.get(self.__dict__["_added_to_by"])
        if isinstance(adding, _DeferredPackage):
            hasattr(adding, "all")  # Any missing name executes the package.
        return getattr(self, name)


def defer_package(name: str, added_to_by: str = "") -> None:
    """Makes modules of a package importable without executing the package's `__init__`.

    The first access to a name that `__init__` defines executes it.

    Args:
      name: the package; it is left alone if it has been imported.
      added_to_by: a package that adds names to it, and is executed after it.
    """
    spec = None if name in sys.modules else find_spec(name)
    if spec is None:
        return
    package = module_from_spec(spec)
    package.__dict__["_added_to_by"] = added_to_by
    package.__class__ = _DeferredPackage
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def defer_evaluation() -> None:
    """Defers the imports of TFMA and of `tfx.components` until they are used.

    TFX's modules import TFMA for a few messages of its config, and `tfx.components` imports every
    component: half of the import time, and a third of the memory.
    """
    # The messages need this module, which their own module does not import.
    importlib.import_module("google.protobuf.wrappers_pb2")
    defer_package("tensorflow_model_analysis", added_to_by="tfx.components")
    defer_package("tfx.components")
