"""What one process of a server does: it follows the versions, answers, and ends at a signal."""

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
from components.serving.server.workers import WorkerPlace
from trainer_module.errors import ConfigError

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_SWITCH_SECONDS = 0.0005
"""For which a thread that has Python's lock may keep it while others want it. The usual 5 ms are
what a request then waits that comes while a batch is made ready, or while the log is written."""
_NEW_OBJECTS = 20_000
"""After which the new ones are searched for garbage; there are a thousand in a batch."""


class _Server(uvicorn.Server):
    """Ends at a signal when all that has come is answered, and that is no failure."""

    def __init__(self, config: uvicorn.Config, ending: tuple[signal.Signals, ...]) -> None:
        super().__init__(config)
        self._ending = ending

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in self._ending:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def open_repository(options: ServeOptions) -> Repository:
    """Returns the versions, of which the newest is loaded.

    Raises:
      ConfigError: none can be loaded, and none is waited for.
    """
    repository = Repository(options.folder, _loader(options))
    repository.look()
    reasons = [f"version {s.number}: {s.message}" for s in repository.states if s.message]
    if repository.number is None and (reasons or not options.waits):
        incomplete = [f"version {s.number} is still being written" for s in repository.states]
        said = "; ".join(reasons or incomplete) or "there is none"
        raise ConfigError(f"no version in {options.folder} can be served: {said}")
    return repository


def _loader(options: ServeOptions) -> Callable[[Path], Servable]:
    if options.variant is not None and options.transformed:
        return functools.partial(load_certified_variant, variant=options.variant)
    return functools.partial(load_certified, variant=options.variant)


def answer(options: ServeOptions, bound: socket.socket, place: WorkerPlace | None = None) -> None:
    """Answers until a signal comes.

    Args:
      options: checked.
      bound: the socket.
      place: among the workers, where there are several.

    Raises:
      ConfigError: no version can be loaded, and none is waited for.
    """
    if not options.transformed:
        import_tensorflow()
    repository = open_repository(options)
    config = make_config(
        options,
        repository,
        place,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=SERVER_GRACE_SECONDS,
    )
    (host, port), number = bound.getsockname()[:2], repository.number
    what = "without a version" if number is None else f"version {number}"
    logger.info("%s %s at %s://%s:%d", options.name, what, options.scheme, host, port)
    if number is None:
        logger.info("no version has been pushed to %s yet: it is waited for", options.folder)
    # Ctrl-C is for the parent of workers: a second signal would have them drop what they answer.
    ending = (signal.SIGTERM,) if place else (signal.SIGTERM, signal.SIGINT)
    # What is there now stays, so no search for garbage has to look at it. Of what comes, little is
    # garbage: requests go without a search.
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _Server(config, ending).run([bound])
    for one in ending:  # The loop has given its handlers back, and the end is under way.
        signal.signal(one, signal.SIG_IGN)
    if repository.is_following:
        # It loads a version. TensorFlow aborts a process that ends meanwhile as others do.
        logging.shutdown()
        os._exit(0)
