"""Beam, as of 2.77: its servers listen on this machine alone, its workers describe their errors.

The public way would be an option for the address at which Beam serves its workers, and one for what
a worker says of an error; it has neither. Both are checked when they are used, and a run stops
where Beam is another.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker.sdk_worker import SdkHarness

from trainer_module.compat.insides import Known, require_known
from trainer_module.errors import InternalError
from trainer_module.strategies.network import LOCALHOST, find_exposed

_HARNESS: Known = {
    "apache_beam.runners.worker.sdk_worker": {
        "SdkHarness._execute": "2a62fda30490",
    },
}

_exposed_before: set[int] = set()
"""The sockets of this process that answered other machines before Beam served."""


def listen_here_alone() -> None:
    """Lets Beam's servers listen on this machine's loopback, in this process from now on.

    Beam listens on all of the machine's addresses, and reads any file out to whoever asks for it.
    Replaced in `worker_handlers`: the module `grpc`, as that file sees it.

    Raises:
      InternalError: this Beam makes its servers in another way.
    """
    global _exposed_before
    module: Any = worker_handlers
    if getattr(module, "grpc", None) not in (grpc, _HERE):
        raise _unknown_beam()
    module.grpc = _HERE
    _exposed_before = set(find_exposed())


def check_listening() -> None:
    """Checks that no server has begun to answer other machines since `listen_here_alone`.

    Raises:
      InternalError: one has.
    """
    if find_exposed().keys() - _exposed_before:
        raise _unknown_beam()


class _Grpc:
    """The module `grpc` as Beam's servers see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    def server(self, *arguments: Any, **options: Any) -> Any:
        """A server that listens on the loopback, whatever host is named."""
        made: Any = grpc.server(*arguments, **options)
        listen = made.add_insecure_port
        made.add_insecure_port = lambda address: listen(f"{LOCALHOST}:{address.rpartition(':')[2]}")
        return made


_HERE = _Grpc()


def _unknown_beam() -> InternalError:
    return InternalError(
        f"Beam {beam.__version__} serves its workers in a way that this project cannot keep off the"
        " network; install the version in uv.lock, or set beam.workers: 1."
    )


class DescribingHarness(SdkHarness):
    """What a worker runs: Beam's own, which tells the run more of an error than its text.

    Overridden is the private method by which Beam runs what it is asked and reports an error.
    """

    def __init__(
        self, describe: Callable[[BaseException], str], *arguments: Any, **options: Any
    ) -> None:
        """As Beam makes it.

        Args:
          describe: what the run is told of an error.
          arguments: Beam's.
          options: Beam's.

        Raises:
          InternalError: this Beam reports errors in another way.
        """
        require_known(_HARNESS, "what a Beam worker says of an error")
        super().__init__(*arguments, **options)
        self._describe = describe

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
                    instruction_id=request.instruction_id, error=self._describe(error)
                )

        super()._execute(attempt, request)
