"""What a run imports: shared with processes that libraries start, and left alone by the collector.

TFX and TensorFlow make millions of objects. The collector would look through them a dozen times
while they are imported, and again and again while a run makes its own: a fifth of what a run over a
small table computes.
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
"""Objects until the youngest are looked through, and how often until the next older ones are."""


def is_in_tfx_command_line() -> bool:
    """Returns whether TFX's own command line runs this: it takes the pipeline, and runs nothing."""
    return "tfx.tools.cli" in sys.modules


@contextmanager
def kept_imports() -> Iterator[None]:
    """Collects no garbage in a `with` block that imports, and never looks at what is there then.

    Processes that are forked afterwards share these objects' memory, as nothing touches it.
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
    """Tells the collector never to look at what is there now, and seldom at what comes."""
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


@contextmanager
def shared_module_path() -> Iterator[None]:
    """Lets interpreters that libraries start in a `with` block find the modules that this finds.

    Beam starts some for its workers, where `beam.args` asks for several processes.
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
    """A package whose modules can be imported, and which is executed once it is asked for more."""

    def __getattr__(self, name: str) -> object:
        """Executes the package, and gives what it has of a name; called for what it has not yet."""
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        # First, as it imports itself.
        object.__setattr__(self, "__class__", ModuleType)
        spec.loader.exec_module(self)
        adding = sys.modules.get(self.__dict__["_added_to_by"])
        if isinstance(adding, _DeferredPackage):
            hasattr(adding, "all")  # Any name has it executed.
        return getattr(self, name)


def defer_package(name: str, added_to_by: str = "") -> None:
    """Lets modules of a package be imported without all that its `__init__` imports.

    Whoever asks for a name that the package itself makes has it executed, and finds it as ever.

    Args:
      name: of the package, which is left as it is where it has been imported.
      added_to_by: a package that gives it more names, and is executed after it.
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
    """Has a process import neither TFMA nor all of TFX's components, unless they are asked for.

    TFX's modules import TFMA for a few messages of its config, and `tfx.components` imports every
    component whichever is meant: a half of the seconds, and a third of the memory.
    """
    # The messages are of these, and their module does not say so.
    importlib.import_module("google.protobuf.wrappers_pb2")
    defer_package("tensorflow_model_analysis", added_to_by="tfx.components")
    defer_package("tfx.components")
