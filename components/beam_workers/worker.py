"""What runs in the process of a Beam worker."""

from __future__ import annotations

import functools
import logging
from importlib import import_module
from typing import Any

from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    DATA_BUFFER_TIME_LIMIT_MS,
    FNAPI_RUNNER_CAPABILITIES,
    MB_TO_BYTES,
    STATE_CACHE_SIZE_MB,
)

from components.beam_workers.failing import describe_error
from components.compat.beam import DescribingHarness
from components.compat.speed import speed_up
from components.processes.worker import Channel


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Works until the run has no more to do.

    Args:
      payload: `control`, the run's address; `worker`, what Beam calls this one; `name`, what
        people do; `libraries`, what the run has imported of that which is made quick.
      channel: not needed, as Beam has its own.
    """
    logging.basicConfig(level=logging.WARNING)
    for library in payload["libraries"]:
        import_module(library)
    speed_up()
    DescribingHarness(
        functools.partial(describe_error, payload["name"]),
        payload["control"],
        worker_id=payload["worker"],
        state_cache_size=STATE_CACHE_SIZE_MB * MB_TO_BYTES,
        data_buffer_time_limit_ms=DATA_BUFFER_TIME_LIMIT_MS,
        runner_capabilities=FNAPI_RUNNER_CAPABILITIES,
    ).run()
