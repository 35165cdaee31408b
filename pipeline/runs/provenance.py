"""Describes the code, the packages and the machine of a run, and its config without secrets."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Any

from components import release
from components.disk import show_size
from pipeline.config.issues import may_hold_secrets
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import files_fingerprint
from pipeline.credentials import mask_credentials
from pipeline.own_modules import PACKAGES, ROOT
from trainer_module.machine import count_cores, total_memory

_GIT_SECONDS = 5
_GPUS = Path("/proc/driver/nvidia/gpus")
NOT_SHOWN = "(not shown)"
"""The value of a key that may be a secret."""


def config_without_secrets(config: PipelineConfig) -> dict[str, object]:
    """Returns the keys that the config file or `--set` sets; values that may be secrets are
    replaced.
    """
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {key: _without_secrets((key,), value) for key, value in values.items()}


def _without_secrets(path: tuple[str, ...], value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_secrets((*path, str(key)), child) for key, child in value.items()}
    if value is not None and may_hold_secrets(path):
        return NOT_SHOWN
    if isinstance(value, list):
        return [_without_secrets((*path, str(i)), child) for i, child in enumerate(value)]
    return mask_credentials(value) if isinstance(value, str) else value


def code_version() -> str:
    """Returns the git commit of Scopeline's code, or else a digest of its packages."""
    if (ROOT / ".git").exists() and (commit := _git("rev-parse", "HEAD")):
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", *PACKAGES)
        if changes is not None:  # Without an answer of git, the code may be another.
            return f"{commit.strip()} with changes" if changes else commit.strip()
    sources = (source for name in PACKAGES for source in sorted((ROOT / name).rglob("*.py")))
    return f"digest {files_fingerprint(sources)}"


def _git(*arguments: str) -> str | None:
    """Returns the output of a git command, or None if git is missing or fails."""
    try:
        return subprocess.run(
            ["git", *arguments],  # noqa: S607 - git has no fixed path
            cwd=ROOT,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def package_versions() -> dict[str, str]:
    """Returns the versions of Python, of Scopeline, and of the installed packages of setup.py.

    If Scopeline is not installed, as in the image, all packages beside it are listed.
    """
    versions = {"python": platform.python_version(), release.NAME: release.read_version()}
    try:
        requirements = "\n".join(requires(release.NAME) or ())
        needed = set(re.findall(r"^[\w.-]+", requirements, re.MULTILINE))
    except PackageNotFoundError:
        needed = {found.name for found in distributions() if found.name}
    for name in sorted(needed):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def describe_machine() -> dict[str, str]:
    """Returns the system, the processor, the usable cores, the memory and the GPUs, in words."""
    machine = {
        "system": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {platform.release()}",
        "processor": _processor(),
        "cores": str(count_cores()),
        "memory": show_size(total_memory()),
    }
    gpus = [_field(path.read_text(), "Model") for path in sorted(_GPUS.glob("*/information"))]
    return machine | ({"gpus": ", ".join(gpus)} if gpus else {})


def _processor() -> str:
    model = _field(Path("/proc/cpuinfo").read_text(), "model name")
    return " ".join(model.split()) or platform.machine()


def _field(text: str, name: str) -> str:
    """Returns the first value of a field in lines of the form `name : value`."""
    match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""
