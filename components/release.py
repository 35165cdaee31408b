"""The release of Scopeline that runs."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NAME = "scopeline"
UNKNOWN = "unknown"
"""The version of copied code without pyproject.toml."""
_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def read_version() -> str:
    """Returns the version of the installed package, or else of pyproject.toml, or `unknown`.

    In the image, Scopeline is not installed.
    """
    with suppress(PackageNotFoundError):
        return version(NAME)
    with suppress(OSError, ValueError, KeyError):
        project = tomllib.loads(_PROJECT.read_text())["project"]
        if project["name"] == NAME:
            return str(project["version"])
    return UNKNOWN
