"""The arguments of Beam's pipelines on this machine, and the limit on their processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

# If no image is named, TFX packages its sources for the workers. The image is never used.
_IMAGE = "--sdk_container_image=local"
IN_PROCESS_ARGS = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    _IMAGE,
)
"""The arguments for pipelines in this process. DirectRunner would try to download another runner
for every pipeline."""
LOCAL_ARGS = ("--runner=components.beam_workers.runner.WorkersRunner", _IMAGE)
"""The arguments for pipelines in several processes, limited by `limit_workers`. The limit is not a
pipeline option: TFX would run components again after every change of the limit."""
AUTO: Final = "auto"
"""The setting with which the runner chooses the number of processes that saves the most time."""
Workers = int | Literal["auto"]
"""The maximum number of processes of a pipeline. With 1 the pipeline runs in this process."""

_max_workers: Workers = AUTO


@contextmanager
def limit_workers(workers: Workers) -> Iterator[None]:
    """Limits the number of processes of each pipeline that runs in the `with` block."""
    global _max_workers
    previous, _max_workers = _max_workers, workers
    try:
        yield
    finally:
        _max_workers = previous


def max_workers() -> Workers:
    """Returns the maximum number of processes of a pipeline, as `limit_workers` has set it."""
    return _max_workers
