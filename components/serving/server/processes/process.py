"""A server: its socket, and the process or the processes behind it."""

from __future__ import annotations

import resource
import socket

from components.serving.imports import import_tensorflow
from components.serving.server.options import ServeOptions
from components.serving.server.processes.logs import log_as_json
from trainer_module.errors import ConfigError

_OTHER_FILES = 512
"""Connections that are refused, and what libraries and the model open."""


def serve(options: ServeOptions) -> None:
    """Serves until a signal comes.

    Raises:
      ConfigError: the port is taken, so many connections cannot be had, or no version can be
        loaded, and none is waited for.
    """
    log_as_json()
    _allow_files(options.connections)
    bound = _bind(options.host, options.port)
    if options.workers > 1:
        from components.serving.server.processes.supervisor import supervise

        supervise(options, bound)
    else:
        if not options.transformed:
            import_tensorflow()
        from components.serving.server.processes.answering import answer, open_repository

        answer(options, open_repository(options), bound)


def _allow_files(connections: int) -> None:
    """Has this process, and those that it starts, open as many files as there are connections."""
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(
            f"--connections {connections:,} takes {needed:,} open files, of which `ulimit -Hn`"
            f" allows {hard:,}: give at most {hard - _OTHER_FILES:,}."
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


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
