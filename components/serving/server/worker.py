"""A server process, which loads new versions, answers requests, and shuts down at a signal."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from components.processes.ending import SERVER_GRACE_SECONDS
from components.serving.certificate import load_certified, load_certified_variant
from components.serving.model import Servable, import_tensorflow
from components.serving.server.app import make_config
from components.serving.server.options import ServeOptions
from components.serving.server.repository import Repository
from components.serving.server.workers import WorkerSlot
from trainer_module.errors import ConfigError

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_SWITCH_SECONDS = 0.0005
"""Python's switch interval: the seconds for which a thread may hold Python's lock while other
threads wait. With the default of 5 ms, a request would wait for 5 ms while a batch is prepared or
the log is written."""
_NEW_OBJECTS = 20_000
"""The number of new objects after which garbage is collected. A batch creates about a thousand."""


class _Server(uvicorn.Server):
    """A uvicorn server that finishes the received requests at a signal, and exits with status 0."""

    def __init__(self, config: uvicorn.Config, end_signals: tuple[signal.Signals, ...]) -> None:
        super().__init__(config)
        self._end_signals = end_signals

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals in the event loop, and does not raise them again as uvicorn does."""
        loop = asyncio.get_running_loop()
        for number in self._end_signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def open_repository(options: ServeOptions) -> Repository:
    """Returns the repository of the versions after loading the newest version.

    Raises:
      ConfigError: no version can be loaded, and the server may not wait for the first version.
    """
    repository = Repository(options.folder, _loader(options), options.version)
    repository.scan()
    reasons = [f"version {s.number}: {s.message}" for s in repository.states if s.message]
    if repository.number is None and (reasons or not options.waits):
        incomplete = [f"version {s.number} is still being written" for s in repository.states]
        problems = "; ".join(reasons or incomplete) or "the folder has no version"
        raise ConfigError(f"no version in {options.folder} can be served: {problems}")
    return repository


def _loader(options: ServeOptions) -> Callable[[Path], Servable]:
    if options.variant is not None and options.transformed:
        return functools.partial(load_certified_variant, variant=options.variant)
    return functools.partial(load_certified, variant=options.variant)


def run_server(options: ServeOptions, bound: socket.socket, slot: WorkerSlot | None = None) -> None:
    """Serves requests until a signal is received.

    Args:
      slot: the number of this worker and the state of all workers, or None for a single process.

    Raises:
      ConfigError: no version can be loaded, and the server may not wait for the first version.
    """
    if not options.transformed:
        import_tensorflow()
    repository = open_repository(options)
    config = make_config(
        options,
        repository,
        slot,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=SERVER_GRACE_SECONDS,
    )
    (host, port), number = bound.getsockname()[:2], repository.number
    version = "without a version" if number is None else f"version {number}"
    logger.info("%s %s at %s://%s:%d", options.name, version, options.scheme, host, port)
    if number is None:
        logger.info("%s has no version yet: the server waits for the first version", options.folder)
    # A worker ignores Ctrl-C, which its parent handles. A second signal would drop its requests.
    end_signals = (signal.SIGTERM,) if slot else (signal.SIGTERM, signal.SIGINT)
    # Objects that exist now are permanent, so garbage collection can skip them. Requests create
    # hardly any reference cycles, so rare garbage collection is enough.
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _Server(config, end_signals).run([bound])
    for number in end_signals:  # The event loop has removed its handlers during shutdown.
        signal.signal(number, signal.SIG_IGN)
    if repository.is_watching:
        # A version is being loaded. TensorFlow aborts a process that exits normally during a load.
        logging.shutdown()
        os._exit(0)
