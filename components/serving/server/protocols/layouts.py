"""Where tensors lie in the bytes of a request: found out once for clients that ask alike again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.serving.requests import RAW, Arrays
from components.serving.server.bodies import parse_json
from components.serving.server.protocols.open_inference import to_request
from components.serving.server.protocols.tensors import DTYPES, name_and_size
from trainer_module.export.interface import ModelInterface

_MOST, _LONGEST = 64, 1 << 14
"""Layouts that are known at once, and bytes of JSON that they may be said by."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Of one tensor of numbers."""

    name: str
    start: int
    count: int
    given: np.dtype
    wanted: np.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    asked: Mapping[str, Any]
    """What the JSON says."""
    interface: ModelInterface
    """Of the model that takes the tensors so."""
    places: tuple[_Place, ...]
    size: int


class Layouts:
    """Reads requests of Open Inference; of those that differ in numbers alone the JSON only once.

    To parse and check the description of a tensor takes longer than to read it.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, _Layout] = {}

    def read(
        self, body: bytes, end: int, interface: ModelInterface
    ) -> tuple[Mapping[str, Any], str, Arrays]:
        """What a request asks.

        Args:
          body: of the request.
          end: of its JSON; tensors follow.
          interface: of the model.

        Returns:
          What the JSON says, the signature and its tensors; `check_tensors` has yet to look at the
          values of those of `serving_raw`.

        Raises:
          RequestError: it is no such request.
        """
        head, tail = body[:end], memoryview(body)[end:]
        known = self._known.get(head)
        if known is not None and known.interface is interface and known.size == len(tail):
            return known.asked, RAW, {p.name: _read(p, tail) for p in known.places}
        asked = parse_json(head)
        signature, tensors = to_request(asked, bytes(tail), interface)
        if signature == RAW and len(head) <= _LONGEST:
            self._learn(head, asked, tensors, interface)
        return asked, signature, tensors

    def _learn(
        self, head: bytes, asked: Mapping[str, Any], tensors: Arrays, interface: ModelInterface
    ) -> None:
        """Remembers a request that was as it should be, if all its tensors are numbers as bytes.

        Of texts the lengths differ, which stand in the JSON.
        """
        if any(column.dtype == "string" for column in interface.columns):
            return
        places, start = [], 0
        for given in asked["inputs"]:
            tensor, dtype = tensors[given["name"]], DTYPES.get(given["datatype"])
            if dtype is None or not np.can_cast(dtype, tensor.dtype, "safe"):
                return
            place = _Place(
                given["name"],
                start,
                tensor.size,
                np.dtype(dtype).newbyteorder("<"),
                tensor.dtype,
                tensor.shape,
            )
            if name_and_size(given)[1] != place.count * place.given.itemsize:
                return
            places.append(place)
            start += place.count * place.given.itemsize
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[head] = _Layout(asked, interface, tuple(places), start)


def _read(place: _Place, tail: memoryview) -> np.ndarray:
    values = np.frombuffer(tail, place.given, place.count, place.start)
    return values.astype(place.wanted).reshape(place.shape)  # Copied to where it is aligned.
