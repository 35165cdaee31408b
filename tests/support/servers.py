"""Servers of tests: in a thread at a real socket, or the command as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import requests
import uvicorn

from components.serving.model import Servable
from components.serving.requests import RAW
from components.serving.server.app import make_config
from components.serving.server.metrics import Metrics
from components.serving.server.options import KEY_VARIABLE, ServeOptions
from components.serving.server.predictions import ParsedRows, SignatureCall
from components.serving.server.protocols.values import RequestInputs, row_count
from components.serving.server.replies import ResultSlice
from components.serving.server.repository import Repository
from components.serving.server.worker import open_repository
from components.serving.server.workers import WorkerSlot
from tests.support.served_trips import ROOT


@contextmanager
def running(
    options: ServeOptions,
    model: Servable | None = None,
    place: WorkerSlot | None = None,
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


class _ArraysAlone:
    """Answers in the form of arrays."""

    def part(self, answer: ResultSlice) -> ResultSlice:
        return answer

    def reply(self, parts: Sequence[ResultSlice]) -> Any:
        return parts[0]


def raw_call(model: object) -> SignatureCall:
    """`serving_raw` of a model that takes columns."""
    metrics = Metrics(lambda: 0.0, lambda: 0.0, lambda: 0.0)
    return SignatureCall(cast("Servable", model), RAW, ServeOptions("trips", Path()), metrics)


def parsed_rows(inputs: RequestInputs) -> ParsedRows:
    """A request that is answered in arrays."""
    return ParsedRows(inputs, _ArraysAlone(), b"", row_count(inputs))


RUNNER = [sys.executable, str(ROOT / "local_runner.py")]


@contextmanager
def serve_process(
    log: Path, port: int, *options: str | Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The command `serve`, in a session of its own, until the end of the test at the latest."""
    with log.open("w") as found_text:
        process = subprocess.Popen(
            [*RUNNER, "serve", "--port", str(port), *map(str, options)],
            stderr=found_text,
            stdout=subprocess.DEVNULL,
            env=without_key() | environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Returns once a version answers."""
    url = f"http://127.0.0.1:{port}/v2/health/ready"
    wait_for(lambda: requests.get(url, timeout=10).ok, process)


def wait_for(found: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    """What `found` gives, once that is something."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert process.poll() is None
        try:
            if value := found():
                return value
        except requests.ConnectionError:
            pass
        time.sleep(0.05)
    raise AssertionError("not found in 120 s")


def wait_until(found: Callable[[], Any]) -> None:
    """Returns once the condition holds."""
    until = time.monotonic() + 120
    while not found():
        assert time.monotonic() < until
        time.sleep(0.02)


def without_key() -> dict[str, str]:
    """The environment of a server that asks for no key."""
    return {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
