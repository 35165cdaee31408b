"""A server in a thread of the test, at a real socket; and a signature without one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import uvicorn

from components.serving.model import Servable
from components.serving.requests import RAW
from components.serving.server.app import make_config
from components.serving.server.metrics import Metrics
from components.serving.server.options import ServeOptions
from components.serving.server.predictions import Asked, SignatureCall
from components.serving.server.processes import open_repository
from components.serving.server.protocols.answers import RequestAnswer
from components.serving.server.protocols.values import RequestInputs, row_count
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
        server = uvicorn.Server(make_config(options, repository, place))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"{options.scheme}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class _AsItIs:
    """The form of an answer that nothing is written of."""

    def part(self, answer: RequestAnswer) -> RequestAnswer:
        return answer

    def reply(self, parts: Sequence[RequestAnswer]) -> Any:
        return parts[0]


def raw_call(model: object) -> SignatureCall:
    """`serving_raw` of a model that takes columns."""
    metrics = Metrics(lambda: 0.0, lambda: 0.0, lambda: 0.0)
    return SignatureCall(cast(Servable, model), RAW, ServeOptions("trips", Path()), metrics)


def asked_of(inputs: RequestInputs) -> Asked:
    """A request, of which the answer is left as the model gives it."""
    return Asked(inputs, _AsItIs(), b"", row_count(inputs))
