"""Import helpers of a run: garbage collection, module paths and deferred packages.

TFX and TensorFlow make millions of objects. The garbage collector would traverse these objects a
dozen times during the imports, and again during a run. This takes a fifth of the computing time of
a run on a small table.
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
"""The thresholds of the garbage collector's three generations."""


def is_in_tfx_command_line() -> bool:
    """Returns whether TFX's own command line runs this process, which only compiles the
    pipeline.
    """
    return "tfx.tools.cli" in sys.modules


@contextmanager
def frozen_imports() -> Iterator[None]:
    """Turns off garbage collection within the block, and freezes the objects that exist at its end.

    Processes that are forked afterwards share the memory of these objects, as nothing modifies it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        freeze_imports()
        if was_enabled:
            gc.enable()


def freeze_imports() -> None:
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
        # The class is changed before the execution, which imports the package itself.
        object.__setattr__(self, "__class__", ModuleType)
        spec.loader.exec_module(self)
        extending = sys.modules.get(self.__dict__["_extended_by"])
        if isinstance(extending, _DeferredPackage):
            hasattr(extending, "all")  # Access to any missing name executes the package.
        return getattr(self, name)


def defer_package(name: str, extended_by: str = "") -> None:
    """Makes modules of a package importable without executing the package's `__init__`.

    The first access to a name that `__init__` defines executes `__init__`.

    Args:
      name: the package; nothing happens if it has been imported.
      extended_by: a package that adds names to `name`, and is executed after `name`.
    """
    spec = None if name in sys.modules else find_spec(name)
    if spec is None:
        return
    package = module_from_spec(spec)
    package.__dict__["_extended_by"] = extended_by
    package.__class__ = _DeferredPackage
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def defer_evaluation() -> None:
    """Defers the imports of TFMA and of `tfx.components` until they are used.

    TFX's modules import TFMA for a few messages of its config, and `tfx.components` imports every
    component. These imports take half of the import time and a third of the memory.
    """
    # TFMA's messages need this module, but the module of the messages does not import it.
    importlib.import_module("google.protobuf.wrappers_pb2")
    defer_package("tensorflow_model_analysis", extended_by="tfx.components")
    defer_package("tfx.components")


def defer_components() -> None:
    """Defers the import of `tfx.components` until it is used.

    The import of this package imports every component, with Kubernetes, Keras Tuner and Keras 3. A
    run imports only the modules of its own components.
    """
    defer_package("tfx.components")
    from components.compat.tfx import add_config_messages

    add_config_messages()
