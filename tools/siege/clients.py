"""Well-behaved clients in a separate process: `python -m tools.siege.clients ORDERS`.

Each client sends requests over a persistent connection, retries after lost connections and status
503, and prints a line of JSON per request.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.siege.models import HEADER_LENGTH, INFER, PREDICT, Models

LOST, OTHER = "lost", "other"
"""The marks of a request whose tries all failed, and of an answer that matches no model."""
_OK, _UNAVAILABLE = 200, 503
_GIVE_UP_SECONDS = 90.0
_TRY_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""The pauses between tries in seconds: the first pause, which doubles up to the longest."""
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class ClientRequest:
    """A request that clients send, and its correct answers."""

    path: str
    body: str
    """The body in base64."""
    headers: dict[str, str]
    scores: dict[str, float]
    """The correct score of each model, by the mark of the model."""


@dataclass(frozen=True)
class ClientConfig:
    """The configuration of the process of the clients."""

    port: int
    key: str
    clients: int
    rate: float
    """The requests per second of each client."""
    requests: list[ClientRequest]

    def write(self, path: Path) -> None:
        """Writes the configuration as JSON."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> ClientConfig:
        """Returns the configuration in a file."""
        content = json.loads(path.read_text())
        return cls(
            **{**content, "requests": [ClientRequest(**item) for item in content["requests"]]}
        )


def make_requests(models: Models) -> list[ClientRequest]:
    """Returns each row as a request of both protocols; only Open Inference returns the version."""
    requests = []
    for row in models.rows:
        head, tail = row.tensors()
        length = {HEADER_LENGTH: str(len(head))}
        for path, body, headers in ((PREDICT, row.rest_body(), {}), (INFER, head + tail, length)):
            requests.append(
                ClientRequest(path, base64.b64encode(body).decode(), headers, row.scores)
            )
    return requests


def read_answer(body: bytes, scores: dict[str, float]) -> tuple[int | None, str]:
    """Returns the version in an answer, or None, and the mark of the model with the same score."""
    try:
        content: dict[str, Any] = json.loads(body)
        if "predictions" in content:
            version, score = None, content["predictions"][0]["scores"][1]
        else:
            outputs = {output["name"]: output["data"] for output in content["outputs"]}
            version, score = int(content["model_version"]), outputs["scores"][1]
        marks = [m for m, expected in scores.items() if abs(score - expected) < _TOLERANCE]
    except (ValueError, KeyError, IndexError, TypeError):
        return None, OTHER
    return version, marks[0] if marks else OTHER


class Client:
    """A well-behaved client of the server."""

    def __init__(self, config: ClientConfig, number: int) -> None:
        self._config, self._number = config, number
        self._chance = random.Random(number)  # noqa: S311 - an order of requests, no secret
        self._connection: http.client.HTTPConnection | None = None

    def send(self, request: ClientRequest, end: threading.Event) -> list[Any]:
        """Sends a request until there is an answer; returns the line to print."""
        began, pause, troubles = time.monotonic(), _FIRST_PAUSE, []
        version, mark = None, LOST
        while not end.is_set() and time.monotonic() - began < _GIVE_UP_SECONDS:
            try:
                status, body = self._try(request)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                troubles.append(type(error).__name__)
            else:
                if status == _OK:
                    version, mark = read_answer(body, request.scores)
                    break
                troubles.append(f"status {status}")
                if status != _UNAVAILABLE:  # Other statuses are not retried.
                    break
            end.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return [self._number, began, time.monotonic() - began, version, mark, troubles]

    def _try(self, request: ClientRequest) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                "127.0.0.1", self._config.port, timeout=_TRY_SECONDS
            )
        headers = {"Authorization": f"Bearer {self._config.key}", **request.headers}
        body = base64.b64decode(request.body)
        self._connection.request("POST", request.path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        """Closes the connection to the server."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, end: threading.Event, lock: threading.Lock) -> None:
        """Sends random requests until the event `end` is set."""
        while not end.is_set():
            line = self.send(self._chance.choice(self._config.requests), end)
            if line[4] == LOST and end.is_set():
                break  # The retries were not complete.
            with lock:
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()
            end.wait(max(0.0, 1 / self._config.rate - line[2]))
        self.close()


def main() -> None:
    """Runs the clients until SIGTERM."""
    config, end, lock = ClientConfig.read(Path(sys.argv[1])), threading.Event(), threading.Lock()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clients = [Client(config, number) for number in range(config.clients)]
    threads = [threading.Thread(target=client.run, args=(end, lock)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
