"""The process of a server: its socket, its signals, its log."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pipeline.serving.certificate.checking import load_certified
from pipeline.serving.server.app import make_app
from pipeline.serving.server.options import GRACE_SECONDS, ServeOptions
from pipeline.serving.server.repository import Repository
from trainer_module.errors import ConfigError

logger = logging.getLogger(__name__)

_BACKLOG = 2048


class _Server(uvicorn.Server):
    """Ends at SIGTERM and Ctrl-C when all that has come is answered, and that is no failure."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


class _JsonFormatter(logging.Formatter):
    """A line of JSON for each message."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def serve(options: ServeOptions) -> None:
    """Serves until a signal comes.

    Raises:
      ConfigError: the port is taken, or no version can be loaded, and none is waited for.
    """
    _log_as_json()
    bound = _bind(options.host, options.port)
    repository = Repository(
        options.folder, functools.partial(load_certified, variant=options.variant)
    )
    repository.look()
    if repository.number is None and (repository.states or not options.waits):
        said = "; ".join(state.message for state in repository.states)
        raise ConfigError(
            f"no version in {options.folder} can be served: {said or 'there is none'}"
        )
    config = uvicorn.Config(
        make_app(options, repository),
        http="httptools",
        loop="uvloop",
        log_config=None,
        access_log=False,
        backlog=_BACKLOG,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.private_key,
    )
    scheme = "https" if options.certificate else "http"
    host, port = bound.getsockname()[:2]
    logger.info("%s %s at %s://%s:%d", options.name, _what_answers(repository), scheme, host, port)
    if repository.number is None:
        logger.info("no version has been pushed to %s yet: it is waited for", options.folder)
    _Server(config).run([bound])
    if repository.is_following:
        # It loads a version. TensorFlow aborts a process that ends meanwhile as others do.
        logging.shutdown()
        os._exit(0)


def _what_answers(repository: Repository) -> str:
    return "without a version" if repository.number is None else f"version {repository.number}"


def _bind(host: str, port: int) -> socket.socket:
    """A socket that has the port; it listens when a version answers."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"--port {port} at {host} cannot be had ({error.strerror}): give another one."
        ) from None
    return bound


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
