"""The product's fork server, loaded by itself: no package of the product comes with it.

Programs that are forked may import another copy of the product than the one that is tested.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

_NAME = "warm.forking"
_FILE = Path(__file__).parents[2] / "components" / "processes" / "local" / "forking.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location(_NAME, _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[_NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from components.processes.local import forking
else:
    forking = _load()

__all__ = ["forking"]
