"""What the user's import paths lead to, once the user's code may run."""

from __future__ import annotations

import importlib
from typing import Any

from trainer_module.errors import TrainingError


def load_own(role: str, path: str) -> Any:
    """A function or class of the user's.

    Args:
      role: what it is for, for messages.
      path: its import path, `module.name`.

    Raises:
      TrainingError: if the module or what it should have cannot be found.
    """
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise TrainingError(f"{role} {path!r}: cannot import {module_name!r}: {error}.") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise TrainingError(f"{role} {path!r}: module {module_name!r} has no function {name!r}.")
    return found
