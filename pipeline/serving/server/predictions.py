"""Requests for predictions answered: read, asked together with others, and written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson

from pipeline.serving.model import RAW
from pipeline.serving.request_log.log import RequestLog
from pipeline.serving.servable import Servable
from pipeline.serving.server.batching import Batcher
from pipeline.serving.server.bodies import parse_json
from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.metrics import Metrics
from pipeline.serving.server.options import ServeOptions
from pipeline.serving.server.protocols import open_inference, rest
from pipeline.serving.server.repository import Repository
from pipeline.serving.server.together import RequestAnswer, RequestInputs, SignatureCall, row_count

_JSON, _BYTES = b"application/json", b"application/octet-stream"
_HEADER_LENGTH = open_inference.HEADER_LENGTH.encode()


@dataclass(frozen=True)
class Reply:
    """What is sent to whoever asked."""

    body: bytes
    content_type: bytes = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Predictions:
    """BatchAnswers by the versions of one model."""

    def __init__(self, options: ServeOptions, repository: Repository, is_shared: bool) -> None:
        """Args:
        options: checked.
        repository: of the versions.
        is_shared: whether this is one of several workers.
        """
        self._options, self._repository = options, repository
        self.metrics = Metrics(
            lambda: self._batcher.waiting_rows,
            lambda: repository.number or 0,
            lambda: repository.failures,
            is_shared=is_shared,
        )
        self._batcher = Batcher(
            ThreadPoolExecutor(thread_name_prefix="model"),
            self.metrics.batch_rows.observe,
            # One core reads requests and writes answers.
            threads=max(1, (os.cpu_count() or 1) // options.workers - 1),
        )
        self.log = RequestLog(options.log, self.metrics.registry) if options.log else None

    def named(
        self, name: str, version: str | None = None, label: str | None = None
    ) -> tuple[int, Servable]:
        """The version that a path names, and its number.

        Raises:
          RequestError: there is none, or none yet.
        """
        if name != self._options.name:
            raise RequestError(
                f"there is no model {name!r} here; {self._options.name!r} is served.", 404
            )
        return self._repository.find(version, label)

    async def predict(self, verb: str, model: Servable, body: bytes) -> Reply:
        """What TF Serving answers.

        Args:
          verb: predict, classify or regress.
          model: of the version that is asked.
          body: of the request.

        Raises:
          RequestError: it is no request that can be answered.
          DataError: the model cannot take its rows.
        """
        asked = parse_json(body)
        if verb == "predict":
            signature, columns, are_rows = rest.to_request(asked, model.interface)
            lists = (await self._ask(model, signature, columns)).lists
            return Reply(orjson.dumps(rest.to_predictions(lists, are_rows)))
        rows = rest.to_examples_request(asked, model.interface)
        lists = (await self._ask(model, RAW, rows)).lists
        of_verb = rest.to_classes if verb == "classify" else rest.to_numbers
        return Reply(orjson.dumps(of_verb(lists)))

    async def infer(
        self, number: int, model: Servable, headers: Mapping[bytes, bytes], body: bytes
    ) -> Reply:
        """What Open Inference v2 answers; raises as `predict` does."""
        length = headers.get(_HEADER_LENGTH)
        if length is not None and not (length.isdigit() and int(length) <= len(body)):
            said = length.decode("latin-1")
            raise RequestError(f"{open_inference.HEADER_LENGTH} is {said!r}, not a length.")
        end = len(body) if length is None else int(length)
        asked = parse_json(body[:end])
        signature, columns = open_inference.to_request(asked, body[end:], model.interface)
        answers = (await self._ask(model, signature, columns)).arrays
        content, head = open_inference.to_response(asked, answers, self._options.name, number)
        if head is None:
            return Reply(content)
        return Reply(content, _BYTES, ((_HEADER_LENGTH, str(head).encode()),))

    async def _ask(self, model: Servable, signature: str, columns: RequestInputs) -> RequestAnswer:
        question = SignatureCall(model, signature, self.metrics.count)
        future = self._batcher.ask(question, columns, row_count(columns))
        # A timer and a future of its own cost a fifth of `asyncio.timeout`.
        seconds = self._options.answer_seconds
        timer = asyncio.get_running_loop().call_later(seconds, _give_up, future, seconds)
        try:
            answer: RequestAnswer = await future
        finally:
            timer.cancel()
        if self.log is not None:
            self.log.note(model, signature, answer.columns, answer.arrays)
        return answer


def _give_up(future: asyncio.Future[Any], seconds: float) -> None:
    if not future.done():
        said = f"there was no answer within {seconds:g} seconds."
        future.set_exception(RequestError(said, 504))
