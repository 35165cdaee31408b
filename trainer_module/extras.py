"""The commands that install optional packages."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import PackageNotFoundError, distributions, requires

NAME = "scopeline"
"""The name of the installed package, whose metadata has the requirements of each extra."""


def install_command(extra: str) -> str:
    """Returns the command that installs the packages of an extra for this Python.

    The command names the packages themselves, because Scopeline is not on PyPI, where a package
    with its name could be anybody's.

    Args:
      extra: the name of the extra in setup.py, such as `optimize`.
    """
    # The import is here, as only a message needs this module.
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(line) for line in requires(NAME) or []]
    except PackageNotFoundError:  # Copied code, such as a clone without an environment.
        return f"uv sync --inexact --extra {extra}"
    packages = []
    for requirement in requirements:
        marker = requirement.marker
        if marker is not None and "extra" in str(marker) and marker.evaluate({"extra": extra}):
            requirement.marker = None
            packages.append(str(requirement))
    # setuptools stops replacing distutils in a process that looks for the module `pip`.
    if not any(distributions(name="pip")):
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *packages])
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])
