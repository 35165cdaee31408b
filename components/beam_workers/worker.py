"""What runs in the process of a Beam worker."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    DATA_BUFFER_TIME_LIMIT_MS,
    FNAPI_RUNNER_CAPABILITIES,
    MB_TO_BYTES,
    STATE_CACHE_SIZE_MB,
)
from apache_beam.runners.worker.sdk_worker import SdkHarness

from components.beam_workers.failing import describe_error
from components.processes.worker import Channel
from components.speed import speed_up


class _Harness(SdkHarness):
    """Beam's own, which tells the run more of an error than its text."""

    def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._name = name

    def _execute(
        self,
        task: Callable[[], beam_fn_api_pb2.InstructionResponse],
        request: beam_fn_api_pb2.InstructionRequest,
    ) -> None:
        def attempt() -> beam_fn_api_pb2.InstructionResponse:
            try:
                return task()
            except BaseException as error:  # Also SystemExit, which a user's code may raise.
                traceback.print_exc()
                return beam_fn_api_pb2.InstructionResponse(
                    instruction_id=request.instruction_id, error=describe_error(self._name, error)
                )

        super()._execute(attempt, request)


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
    _Harness(
        payload["name"],
        payload["control"],
        worker_id=payload["worker"],
        state_cache_size=STATE_CACHE_SIZE_MB * MB_TO_BYTES,
        data_buffer_time_limit_ms=DATA_BUFFER_TIME_LIMIT_MS,
        runner_capabilities=FNAPI_RUNNER_CAPABILITIES,
    ).run()
