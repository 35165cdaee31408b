"""Where our own modules are, and that no others of the same names are taken for them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder that our packages and runners are in."""
LOCAL_RUNNER = ROOT / "local_runner.py"
PACKAGES = ("pipeline", "components", "trainer_module")
NAMES = (*PACKAGES, "local_runner", "kubeflow_runner")


def is_ours(import_path: str) -> bool:
    """Returns whether a module, or what an import path names in one, is of our packages."""
    return import_path.partition(".")[0] in PACKAGES


def find_modules_in(folder: Path) -> None:
    """Lets modules of the user's be found in a folder.

    They go before installed ones, as Python itself would have it, but behind our own where some
    have the same names, as in another TFX project: processes of ours that are yet to come, to
    which this one's path is handed on, would import those.
    """
    here, ours = str(folder.resolve()), str(ROOT)
    if here == ours or not any(_is_in(folder, name) for name in NAMES):
        if here not in sys.path:
            sys.path.insert(0, here)
        return
    others = [path for path in sys.path if Path(path).resolve() != folder.resolve()]
    place = others.index(ours) if ours in others else 0
    sys.path[:] = [*others[:place], ours, here, *(p for p in others[place:] if p != ours)]


def _is_in(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()
