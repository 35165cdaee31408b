"""What a request for predictions asks, and the form of its answer. Imports no TensorFlow."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson

from components.serving.requests import RAW, Arrays
from components.serving.server.bodies import parse_json, read_length
from components.serving.server.protocols import open_inference, rest
from components.serving.server.protocols.layouts import Layouts
from components.serving.server.replies import BYTES, Reply, RequestError
from components.serving.server.together import RequestAnswer, RequestInputs, row_count
from trainer_module.export.interface import ModelInterface

_PATHS = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r":(?P<verb>predict|classify|regress)"
    r"|/v2/models/(?P<name2>[^/]+)(/versions/(?P<version2>[^/]+))?/infer"
)
_KNOWN_PATHS = 128


@dataclass(frozen=True, slots=True)
class PredictionPath:
    """Which model is asked for what."""

    name: str
    version: str | None
    label: str | None
    verb: str | None
    """Of TF Serving; None by Open Inference."""


@functools.lru_cache(_KNOWN_PATHS)
def read_path(path: str) -> PredictionPath | None:
    """What a path asks for; None if that is no prediction."""
    found = _PATHS.fullmatch(path)
    if found is None:
        return None
    if found["verb"] is None:
        return PredictionPath(found["name2"], found["version2"], None, None)
    return PredictionPath(found["name"], found["version"], found["label"], found["verb"])


@functools.lru_cache(_KNOWN_PATHS)
def read_plain_url(url: bytes) -> PredictionPath | None:
    """The same for what follows POST, where that is a path of ASCII and nothing more."""
    if not url.isascii() or b"%" in url or b"?" in url or b"#" in url:
        return None
    return read_path(url.decode())


_HEADER_LENGTH = open_inference.HEADER_LENGTH.encode()
_SHOWN = 40
"""Characters of a wrong header that are shown."""
_OF_TEXT = 64
"""Bytes of a short text in an array, about."""


class PredictionRequest(NamedTuple):
    """What a client has sent."""

    path: PredictionPath
    headers: Mapping[bytes, bytes]
    body: bytes
    name: bytes
    """Its id."""


class AnswerForm(Protocol):
    """How the answer to a request is written; it can be pickled."""

    def part(self, answer: RequestAnswer) -> Any:
        """What is written of some of its rows."""

    def reply(self, parts: Sequence[Any]) -> Reply:
        """The answer, of what was written of all its rows in their order."""


class ReadRequest(NamedTuple):
    """What a request asks."""

    signature: str
    inputs: RequestInputs
    form: AnswerForm
    rows: int


def read_request(
    request: PredictionRequest,
    number: int,
    interface: ModelInterface,
    layouts: Layouts,
    most_rows: int,
) -> ReadRequest:
    """What a request asks a version.

    Args:
      request: all of it.
      number: of the version.
      interface: of its model.
      layouts: known ones.
      most_rows: that it may have.

    Raises:
      RequestError: it is no request that can be answered, or has too many rows.
    """
    if request.path.verb is None:
        signature, inputs, form = _read_inference(request, number, interface, layouts)
    else:
        signature, inputs, form = _read_rest(request, interface)
    rows = row_count(inputs)
    if rows > most_rows:
        raise RequestError(
            f"the request has {rows:,} rows: at most {most_rows:,} are answered at once.", 413
        )
    return ReadRequest(signature, inputs, form, rows)


def json_length(request: PredictionRequest) -> int:
    """How much of a body is JSON; tensors of Open Inference may follow it.

    Raises:
      RequestError: the header that says so is wrong.
    """
    header = request.headers.get(_HEADER_LENGTH) if request.path.verb is None else None
    length = len(request.body) if header is None else read_length(header)
    if length is None or length > len(request.body):
        said = (header or b"")[:_SHOWN].decode("latin-1")
        raise RequestError(f"{open_inference.HEADER_LENGTH} is {said!r}, not a length.")
    return length


def _read_rest(
    request: PredictionRequest, interface: ModelInterface
) -> tuple[str, RequestInputs, AnswerForm]:
    """What TF Serving is asked."""
    asked = parse_json(request.body)
    if request.path.verb == "predict":
        signature, inputs, are_rows = rest.to_request(asked, interface)
        return signature, inputs, _ROWS if are_rows else _COLUMNS
    form: AnswerForm = _CLASSES if request.path.verb == "classify" else _NUMBERS
    return RAW, rest.to_examples_request(asked, interface), form


def _read_inference(
    request: PredictionRequest, number: int, interface: ModelInterface, layouts: Layouts
) -> tuple[str, RequestInputs, AnswerForm]:
    """What Open Inference v2 asks."""
    body, end = request.body, json_length(request)
    asked, signature, tensors = layouts.read(body, end, interface)
    wishes = open_inference.read_wishes(asked)
    return signature, tensors, _Inference(wishes, request.path.name, number)


class _Rows:
    """TF Serving's, by row."""

    def part(self, answer: RequestAnswer) -> bytes:
        return b",".join(answer.row_texts)

    def reply(self, parts: Sequence[bytes]) -> Reply:
        return Reply(rest.write_rows(parts))


class _Columns:
    """TF Serving's, by column."""

    def part(self, answer: RequestAnswer) -> dict[str, bytes]:
        return {name: b",".join(texts) for name, texts in answer.column_texts.items()}

    def reply(self, parts: Sequence[dict[str, bytes]]) -> Reply:
        return Reply(rest.write_columns({n: [part[n] for part in parts] for n in parts[0]}))


class _Classes:
    """TF Serving's answer to `:classify`."""

    def part(self, answer: RequestAnswer) -> bytes:
        return orjson.dumps(rest.to_classes(answer.lists))[1:-1]

    def reply(self, parts: Sequence[bytes]) -> Reply:
        return Reply(rest.write_results(parts))


class _Numbers:
    """TF Serving's answer to `:regress`."""

    def part(self, answer: RequestAnswer) -> bytes:
        return orjson.dumps(rest.to_numbers(answer.lists))[1:-1]

    def reply(self, parts: Sequence[bytes]) -> Reply:
        return Reply(rest.write_results(parts))


_ROWS, _COLUMNS, _CLASSES, _NUMBERS = _Rows(), _Columns(), _Classes(), _Numbers()


@dataclass(frozen=True, slots=True)
class _Inference:
    """Open Inference's."""

    wishes: open_inference.Wishes
    name: str
    """Of the model."""
    number: int
    """Of its version."""

    def part(self, answer: RequestAnswer) -> Arrays:
        return open_inference.only_wanted(answer.arrays, self.wishes)

    def reply(self, parts: Sequence[Arrays]) -> Reply:
        together = parts[0]
        if len(parts) > 1:
            together = {name: np.concatenate([part[name] for part in parts]) for name in together}
        content, head = open_inference.to_response(self.wishes, together, self.name, self.number)
        if head is None:
            return Reply(content)
        return Reply(content, BYTES, ((_HEADER_LENGTH, b"%d" % head),))


def size_of_part(part: Any) -> int:
    """Bytes of what an `AnswerForm` has written of some rows, about."""
    if isinstance(part, bytes):
        return len(part)
    if isinstance(part, np.ndarray):
        return part.size * _OF_TEXT if part.dtype == object else part.nbytes
    return sum(map(size_of_part, part.values()))
