"""Two logical CPUs, so that strategies have two real replicas.

TensorFlow reads the number once, at its start, so it is set as soon as anything imports it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def _split_cpu(tensorflow: Any) -> None:
    config = tensorflow.config
    (cpu, *_) = config.list_physical_devices("CPU")
    config.set_logical_device_configuration(cpu, [config.LogicalDeviceConfiguration()] * 2)


class _ImportHook(importlib.abc.MetaPathFinder):
    """Finds TensorFlow, and adds to what its import does."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_split(module: ModuleType) -> None:
            sys.meta_path.remove(self)
            execute(module)
            _split_cpu(module)

        spec.loader.exec_module = execute_and_split
        return spec


def split_cpu_at_import() -> None:
    """Has the import of TensorFlow in this process make two logical CPUs of the machine's."""
    if "tensorflow" in sys.modules:
        _split_cpu(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, _ImportHook())
