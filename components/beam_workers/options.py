"""How many processes may share the work of Beam's pipelines on this machine."""

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
"""Beam in as many processes as `at_most` lets it have. That number is no option of a pipeline: TFX
takes a component whose options are others for another, which it runs again."""
AUTO: Final = "auto"
"""As many processes as pay."""
Workers = int | Literal["auto"]
"""The most processes that share the work; 1 for this process alone."""

_most: Workers = AUTO


@contextmanager
def at_most(workers: Workers) -> Iterator[None]:
    """Bounds the processes that share the work of a pipeline, in a `with` block.

    Args:
      workers: the most of them.
    """
    global _most
    before, _most = _most, workers
    try:
        yield
    finally:
        _most = before


def most_workers() -> Workers:
    """Returns the most processes of a pipeline that is run now."""
    return _most
