"""How many processes Beam may use here, as its options say it.

Beam's own options are used, which its runner in this process would understand, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

_RUNNER = "components.beam_workers.runner.WorkersRunner"
# Without the name of an image, which nothing here uses, TFX would package its sources for workers.
_IMAGE = "--sdk_container_image=local"
IN_PROCESS_ARGS = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    _IMAGE,
)
"""Beam in this process. DirectRunner would try to download another runner for every pipeline."""
AUTO = 0
"""Beam's number for as many workers as there are cores; here, as many as pay."""
Workers = int | Literal["auto"]
"""The most processes that share the work; 1 for this process alone, auto for as many as pay."""

_most = AUTO


def local_args(workers: Workers = "auto") -> list[str]:
    """The options of a component's Beam pipeline on this machine.

    TFX takes a component whose options are others for another, which it runs again. So those of a
    config leave the number out: see `at_most`.

    Args:
      workers: the most processes that share its work.
    """
    most = _number(workers)
    several = ["--direct_running_mode=multi_processing", f"--direct_num_workers={most}"]
    return [f"--runner={_RUNNER}", _IMAGE, *(several if most != 1 else ())]


@contextmanager
def at_most(workers: Workers) -> Iterator[None]:
    """Lets pipelines whose options do not say how many share their work, in a `with` block.

    Args:
      workers: the most processes.
    """
    global _most
    before, _most = _most, _number(workers)
    try:
        yield
    finally:
        _most = before


def most_workers(stated: int) -> int:
    """The most processes of a pipeline.

    Args:
      stated: as its options say; AUTO for what `at_most` does.
    """
    return _most if stated == AUTO else stated


def _number(workers: Workers) -> int:
    return AUTO if workers == "auto" else workers
