"""The location of our own modules, and an import path on which no others shadow them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder of our packages and runners."""
LOCAL_RUNNER = ROOT / "local_runner.py"
PACKAGES = ("pipeline", "components", "trainer_module")
NAMES = (*PACKAGES, "local_runner", "kubeflow_runner")


def is_own_module(import_path: str) -> bool:
    """Returns whether an import path leads into our packages."""
    return import_path.partition(".")[0] in PACKAGES


def find_modules_in(folder: Path) -> None:
    """Makes the user's modules in a folder importable.

    The folder comes before installed packages, as in Python itself, but after our own if it
    contains modules of the same names, as in another TFX project: otherwise child processes, which
    get this process's path, would import those.
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
