"""Processes that begin with TFX and the product imported: `warm.run`, `warm.Popen`."""

from tests.support.warm.processes import Popen, run, share

__all__ = ["Popen", "run", "share"]
