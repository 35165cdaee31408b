"""Keeps what Beam serves its workers to this machine.

Beam listens on all of the machine's addresses, and reads any file out to whoever asks for it.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import grpc
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from trainer_module.errors import InternalError
from trainer_module.strategies.network import LOCALHOST, find_exposed

_exposed_before: set[int] = set()
"""The sockets of this process that answered other machines before Beam served."""


def listen_here_alone() -> None:
    """Lets Beam's servers listen on this machine's loopback, in this process from now on.

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
