"""Processes that begin with TFX imported: `warm.run` and `warm.Popen`, as those of `subprocess`."""

from warm.processes import Popen, run

__all__ = ["Popen", "run"]
