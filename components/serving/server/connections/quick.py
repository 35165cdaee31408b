"""Which requests for predictions are answered without ASGI, and how they are answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp

from components.serving.server.batching import Awaited
from components.serving.server.bodies import read_length
from components.serving.server.middleware import has_key
from components.serving.server.options import ServeOptions
from components.serving.server.predictions import Predictions
from components.serving.server.reading import PredictionPath, PredictionRequest, read_plain_url


class Quick:
    """Answers requests that have come whole, and that nothing is wrong with outside their body."""

    def __init__(self, predictions: Predictions, options: ServeOptions) -> None:
        self._predictions, self._options = predictions, options
        self.metrics, self.room = predictions.metrics, predictions.room
        self.client_seconds = options.body_seconds
        """In which the head of a request has to come, and some of an answer has to be read."""

    def takes(self, url: bytes, headers: Mapping[bytes, bytes]) -> PredictionPath | None:
        """Whether a request that posts something is one of them: then what it asks for.

        Args:
          url: as it stands behind POST.
          headers: by their names in lower case.
        """
        path = read_plain_url(url)
        if path is None or not has_key(headers, self._options.key):
            return None
        if b"content-encoding" in headers or b"expect" in headers:
            return None
        length = read_length(headers.get(b"content-length", b""))
        if length is None or length > self._options.max_bytes:
            return None
        return path

    def answer(self, request: PredictionRequest, answer: Awaited) -> None:
        """Has a request answered; see `Predictions.answer`."""
        self._predictions.answer(request, answer)

    def drop(self, answer: Awaited) -> None:
        """Has a request not answered whose client has gone."""
        self._predictions.drop(answer)


@dataclass(frozen=True)
class Application:
    """What answers, in two ways that agree."""

    asgi: ASGIApp
    """Answers every request."""
    quick: Quick
    """Answers most requests for predictions, in less time."""
