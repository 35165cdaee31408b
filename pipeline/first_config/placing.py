"""Paths of a proposed config, as a run in the folder of the config reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.first_config.proposal import Proposal


def place(proposal: Proposal, folder: Path) -> Proposal:
    """Returns the proposal with paths that are valid in a folder.

    Args:
      proposal: a proposal whose paths are relative to the working directory.
      folder: the folder in which the user will run the config.
    """
    if folder.resolve() == Path.cwd().resolve():
        return proposal
    config: dict[str, Any] = dict(proposal.config)
    if not proposal.table:
        config["data"] = {**config["data"], "path": _seen_from(config["data"]["path"], folder)}
    if "features" in config:
        config["features"] = {
            name: {k: _seen_from(v, folder) if k == "folder" else v for k, v in feature.items()}
            for name, feature in config["features"].items()
        }
    return replace(proposal, config=config)


def _seen_from(path: str, folder: Path) -> str:
    """Returns a path relative to a folder that contains it, otherwise the absolute path."""
    absolute, base = Path(path).absolute(), folder.resolve()
    return str(absolute.relative_to(base) if absolute.is_relative_to(base) else absolute)
