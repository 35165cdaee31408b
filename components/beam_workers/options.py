"""The number of processes that run Beam's pipelines on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

# Without the name of an image, which nothing here uses, TFX would package its sources for workers.
_IMAGE = "--sdk_container_image=local"
IN_PROCESS_ARGS = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    _IMAGE,
)
"""Beam in this process. DirectRunner would try to download another runner for every pipeline."""
LOCAL_ARGS = ("--runner=components.beam_workers.runner.WorkersRunner", _IMAGE)
"""Beam in at most as many processes as `at_most` sets. The number is not a pipeline option, as TFX
would run a component again whose options differ."""
AUTO: Final = "auto"
"""The setting for as many processes as save time."""
Workers = int | Literal["auto"]
"""The most processes for a pipeline; 1 for this process alone."""

_most: Workers = AUTO


@contextmanager
def at_most(workers: Workers) -> Iterator[None]:
    """Limits the processes of pipelines that run in a `with` block.

    Args:
      workers: the most processes.
    """
    global _most
    before, _most = _most, workers
    try:
        yield
    finally:
        _most = before


def most_workers() -> Workers:
    """Returns the most processes of a pipeline that runs now."""
    return _most
