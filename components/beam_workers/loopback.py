"""Keeps what Beam serves its workers to this machine.

Beam listens on all of the machine's addresses, and reads any file out to whoever asks for it.
"""

from __future__ import annotations

from typing import Any

import grpc
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from trainer_module.strategies.network import LOCALHOST

_EVERYWHERE = "[::]"


def listen_here_alone() -> None:
    """Lets Beam's servers of this process do so; calling it again changes nothing."""
    module: Any = worker_handlers
    module.grpc = _Grpc()


class _Grpc:
    """The module `grpc` as Beam's servers see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    def server(self, *arguments: Any, **options: Any) -> Any:
        """A server that listens on the address of this machine by which its workers ask."""
        made: Any = grpc.server(*arguments, **options)
        listen = made.add_insecure_port
        made.add_insecure_port = lambda address: listen(address.replace(_EVERYWHERE, LOCALHOST))
        return made
