"""A server in a thread of the test, at a real socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from components.serving.model import Servable
from components.serving.server.app import make_app
from components.serving.server.connections.config import make_config
from components.serving.server.options import ServeOptions
from components.serving.server.processes.answering import open_repository
from components.serving.server.repository import Repository
from components.serving.server.workers import WorkerPlace


@contextmanager
def running(
    options: ServeOptions,
    model: Servable | None = None,
    place: WorkerPlace | None = None,
    repository: Repository | None = None,
) -> Iterator[str]:
    """A server in a thread; gives its address. A model answers in place of the pushed version."""
    if model is not None:
        repository = Repository.of(model)
    repository = repository or open_repository(options)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(make_config(make_app(options, repository, place), options))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"{options.scheme}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
