"""Requests for predictions answered: read, asked together with others, and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from pipeline.serving.model import RAW
from pipeline.serving.request_log.gathering import Answered
from pipeline.serving.request_log.log import RequestLog
from pipeline.serving.servable import Servable
from pipeline.serving.server.batching import Awaited, Batcher
from pipeline.serving.server.bodies import parse_json, read_length
from pipeline.serving.server.errors import RequestError
from pipeline.serving.server.metrics import Metrics
from pipeline.serving.server.options import ServeOptions
from pipeline.serving.server.protocols import open_inference, rest
from pipeline.serving.server.protocols.layouts import Layouts
from pipeline.serving.server.protocols.paths import PredictionPath
from pipeline.serving.server.protocols.replies import BYTES, Reply
from pipeline.serving.server.repository import Repository
from pipeline.serving.server.together import RequestAnswer, RequestInputs, SignatureCall, row_count
from trainer_module.machine import count_cores

_HEADER_LENGTH = open_inference.HEADER_LENGTH.encode()
_SAID = 40
"""Characters of a wrong header that are shown."""
_Write = Callable[[RequestAnswer], Reply]


class PredictionRequest(NamedTuple):
    """What a client has sent."""

    path: PredictionPath
    headers: Mapping[bytes, bytes]
    body: bytes
    name: bytes
    """Its id."""


class _Asked(NamedTuple):
    """A request that has been read."""

    inputs: RequestInputs
    write: _Write
    name: bytes


@dataclass(frozen=True, eq=False)
class _Replies:
    """Asks a model for several requests, and writes what is sent to each client."""

    call: SignatureCall
    log: RequestLog | None

    def __call__(self, requests: Sequence[_Asked]) -> list[Reply | Exception]:
        answers = self.call([one.inputs for one in requests])
        if self.log is not None:
            self._note(self.log, requests, answers)
        return [
            answer if isinstance(answer, Exception) else _write(one, answer)
            for one, answer in zip(requests, answers, strict=True)
        ]

    def _note(
        self,
        log: RequestLog,
        requests: Sequence[_Asked],
        answers: Sequence[RequestAnswer | Exception],
    ) -> None:
        """Has what was answered written down, in the order of the rows that were asked for."""
        parts: dict[int, list[tuple[RequestAnswer, bytes]]] = {}
        for one, answer in zip(requests, answers, strict=True):
            if not isinstance(answer, Exception):
                parts.setdefault(id(answer.of), []).append((answer, one.name))
        for part in parts.values():
            part.sort(key=lambda pair: pair[0].rows.start)
            names = [(name.decode(), answer.rows.stop - answer.rows.start) for answer, name in part]
            of = part[0][0].of
            log.note(
                Answered(
                    names, time.time(), self.call.model, self.call.signature, of.columns, of.arrays
                )
            )


def _write(asked: _Asked, answer: RequestAnswer) -> Reply | Exception:
    try:
        return asked.write(answer)
    except Exception as error:
        return error


class Predictions:
    """Predictions by the versions of one model."""

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
            threads=max(1, count_cores() // options.workers - 1),
            seconds=options.answer_seconds,
        )
        self._layouts = Layouts()
        self._by_signature: dict[str, _Replies] = {}
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

    def answer(self, request: PredictionRequest, answer: Awaited) -> None:
        """Has a request answered, now or later.

        Args:
          request: all of it.
          answer: takes a Reply; or a RequestError if it is no request that can be answered, and a
            DataError if the model cannot take its rows.
        """
        try:
            path = request.path
            number, model = self.named(path.name, path.version, path.label)
            if path.verb is None:
                signature, inputs, write = _read_inference(request, number, model, self._layouts)
            else:
                signature, inputs, write = _read_rest(request, model)
            asked = _Asked(inputs, write, request.name)
            self._batcher.ask(self._replies(model, signature), asked, row_count(inputs), answer)
        except Exception as error:
            answer.set_exception(error)

    def _replies(self, model: Servable, signature: str) -> _Replies:
        """The same one for requests that can be asked together."""
        found = self._by_signature.get(signature)
        if found is None or found.call.model is not model:
            most = self._options.max_pixels
            call = SignatureCall(model, signature, self.metrics.count, most)
            found = self._by_signature[signature] = _Replies(call, self.log)
        return found


def _read_rest(request: PredictionRequest, model: Servable) -> tuple[str, RequestInputs, _Write]:
    """What TF Serving is asked."""
    asked = parse_json(request.body)
    if request.path.verb == "predict":
        signature, columns, are_rows = rest.to_request(asked, model.interface)
        return signature, columns, _write_rows if are_rows else _write_columns
    write = _write_classes if request.path.verb == "classify" else _write_numbers
    return RAW, rest.to_examples_request(asked), write


def _write_rows(answer: RequestAnswer) -> Reply:
    return Reply(rest.write_rows(answer.row_texts))


def _write_columns(answer: RequestAnswer) -> Reply:
    return Reply(rest.write_columns(answer.column_texts))


def _write_classes(answer: RequestAnswer) -> Reply:
    return Reply(orjson.dumps(rest.to_classes(answer.lists)))


def _write_numbers(answer: RequestAnswer) -> Reply:
    return Reply(orjson.dumps(rest.to_numbers(answer.lists)))


def _read_inference(
    request: PredictionRequest, number: int, model: Servable, layouts: Layouts
) -> tuple[str, RequestInputs, _Write]:
    """What Open Inference v2 asks."""
    body, header = request.body, request.headers.get(_HEADER_LENGTH)
    end = len(body) if header is None else read_length(header)
    if end is None or end > len(body):
        said = (header or b"")[:_SAID].decode("latin-1")
        raise RequestError(f"{open_inference.HEADER_LENGTH} is {said!r}, not a length.")
    asked, signature, columns = layouts.read(body, end, model.interface)
    name = request.path.name

    def write(answer: RequestAnswer) -> Reply:
        content, head = open_inference.to_response(asked, answer.arrays, name, number)
        if head is None:
            return Reply(content)
        return Reply(content, BYTES, ((_HEADER_LENGTH, b"%d" % head),))

    return signature, columns, write
