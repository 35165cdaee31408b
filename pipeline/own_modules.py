"""The location of Scopeline's modules, and an import path that finds them first."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder of Scopeline's packages and runners."""
LOCAL_RUNNER = ROOT / "local_runner.py"
PACKAGES = ("pipeline", "components", "trainer_module")
NAMES = (*PACKAGES, "local_runner", "kubeflow_runner")


def is_own_module(import_path: str) -> bool:
    """Returns whether an import path names a module of Scopeline."""
    return import_path.partition(".")[0] in PACKAGES


def find_modules_in(folder: Path) -> None:
    """Makes the user's modules in a folder importable.

    The folder is put before installed packages, as Python does with the folder of a script. If the
    folder contains modules with the names of Scopeline's, as another TFX project may, the folder is
    put after Scopeline's. Otherwise child processes, which inherit the path, would import the
    modules of that project.
    """
    user_folder, own_folder = str(folder.resolve()), str(ROOT)
    if user_folder == own_folder or not any(_has_module(folder, name) for name in NAMES):
        if user_folder not in sys.path:
            sys.path.insert(0, user_folder)
        return
    others = [path for path in sys.path if Path(path).resolve() != folder.resolve()]
    index = others.index(own_folder) if own_folder in others else 0
    following = [path for path in others[index:] if path != own_folder]
    sys.path[:] = [*others[:index], own_folder, user_folder, *following]


def _has_module(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()
