"""Several requests to a model as one, and the part of its answers that each of them gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeGuard, TypeVar, cast

import numpy as np

from components.serving.model import Servable
from components.serving.requests import (
    EXAMPLES,
    MISSING,
    RAW,
    Arrays,
    UnreadableValues,
    find_unreadable,
    measure_pictures,
)
from components.serving.server.protocols.open_inference import check_tensors
from components.serving.server.protocols.texts import (
    Lists,
    Texts,
    to_column_texts,
    to_lists,
    to_row_texts,
)
from components.serving.server.protocols.values import (
    Columns,
    Rows,
    check_size,
    rows_to_arrays,
    to_arrays,
)
from components.serving.server.replies import Reply, RequestError, refusal
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface
from trainer_module.features.pixels import SERVED_PIXELS

PICTURES_AT_ONCE = 4
"""How many of the largest pictures a request may have; or as many pixels of smaller ones."""

RequestInputs = Rows | Columns | Arrays
"""What one request asks: rows or columns of JSON, or tensors."""
_Values = TypeVar("_Values", Rows, Columns)


class BatchAnswers:
    """What the model answers to several requests; in each form it is made once for all."""

    def __init__(self, columns: Arrays, arrays: Arrays) -> None:
        """Args:
        columns: what was asked, [rows, ...] each.
        arrays: the answers, [rows, ...] each.
        """
        self.columns, self.arrays = columns, arrays

    @cached_property
    def lists(self) -> Lists:
        """As JSON has them."""
        return to_lists(self.arrays)

    @cached_property
    def column_texts(self) -> dict[str, Texts]:
        """As JSON, by output and row."""
        return to_column_texts(self.arrays)

    @cached_property
    def row_texts(self) -> Texts:
        """As JSON, by row."""
        return to_row_texts(self.column_texts)


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The part of one request."""

    of: BatchAnswers
    rows: slice

    @property
    def columns(self) -> Arrays:
        """What was asked."""
        return {name: values[self.rows] for name, values in self.of.columns.items()}

    @property
    def arrays(self) -> Arrays:
        """The answers by name, [rows, ...] each."""
        return {name: values[self.rows] for name, values in self.of.arrays.items()}

    @property
    def lists(self) -> Lists:
        """The same as JSON has them."""
        return {name: values[self.rows] for name, values in self.of.lists.items()}

    @property
    def column_texts(self) -> dict[str, Texts]:
        """As JSON, by output and row."""
        return {name: texts[self.rows] for name, texts in self.of.column_texts.items()}

    @property
    def row_texts(self) -> Texts:
        """As JSON, by row."""
        return self.of.row_texts[self.rows]


@dataclass(frozen=True, eq=False)
class SignatureCall:
    """A signature of a model, which several requests may ask together."""

    model: Servable
    signature: str
    told: Callable[[Arrays], None]
    """Is told what was answered."""
    max_pixels: int = SERVED_PIXELS
    """That a picture may have."""
    told_unreadable: Callable[[Sequence[UnreadableValues]], None] | None = None
    """Is told which texts the model took for missing as it cannot read them; None refuses them."""

    def __call__(self, requests: Sequence[RequestInputs]) -> list[RequestAnswer | Reply]:
        """An answer, or what it is refused with, for each request.

        Where some request makes all of them fail, halves are asked again, and halves of these,
        until those are found that fail by themselves.
        """
        found: dict[int, RequestAnswer | Reply] = {}
        parts = self._to_parts(requests, found)
        if parts:
            places = list(chain.from_iterable(places for places, _ in parts))
            try:
                columns = {name: join([part[name] for _, part in parts]) for name in parts[0][1]}
            except RequestError:  # Together they would be too large.
                for of, part in parts:
                    self._ask_together(of, part, requests, found)
            else:
                self._ask_together(places, columns, requests, found)
        return [found[place] for place in range(len(requests))]

    def _to_parts(
        self, requests: Sequence[RequestInputs], found: dict[int, RequestAnswer | Reply]
    ) -> list[tuple[list[int], Arrays]]:
        """Tensors, and the places of the requests that they are of.

        What is wrong with others goes to `found`. Rows of JSON become tensors all at once, and so
        do columns, if they can.
        """
        rows: dict[int, Rows] = {}
        columns: dict[int, Columns] = {}
        parts: list[tuple[list[int], Arrays]] = []
        for place, one in enumerate(requests):
            if isinstance(one, list):
                rows[place] = one
            elif _are_tensors(one):
                try:
                    parts.append(([place], self.checked(one)))
                except RequestError as error:
                    found[place] = refusal(error)
            else:
                columns[place] = cast(Columns, one)
        parts += _to_tensors(rows, self._of_rows, found)
        return parts + _to_tensors(columns, self._of_columns, found)

    def _of_rows(self, requests: Sequence[Rows]) -> Arrays:
        return self.checked(_of_rows(requests, self.model.interface))

    def _of_columns(self, requests: Sequence[Columns]) -> Arrays:
        return self.checked(_of_columns(requests, self.model.interface))

    def checked(self, tensors: Arrays) -> Arrays:
        """Raises RequestError for tensors with a picture that is damaged or too large.

        So it does where all of them together would keep others waiting for long, and for texts that
        the model cannot read where these are refused.
        """
        are_examples = self.signature == EXAMPLES
        try:
            measured = measure_pictures(
                tensors, self.model.interface, are_examples=are_examples, most=self.max_pixels
            )
        except DataError as error:
            raise RequestError(str(error)) from None
        pixels, most = sum(measured.pixels) if measured else 0, PICTURES_AT_ONCE * self.max_pixels
        if pixels > most:
            raise RequestError(
                f"the pictures have {pixels:,} pixels together: at most {most:,} are decoded for a "
                "request; send fewer at once.",
                413,
            )
        if self.told_unreadable is None:
            self._refuse_unreadable(tensors)
        return tensors

    def _refuse_unreadable(self, tensors: Arrays) -> None:
        for one in self._find_unreadable(tensors):
            raise RequestError(
                f"{one.column!r} of row {one.row} is {one.text!r}, expected {one.right}, or null"
                " where it is missing."
            )

    def _find_unreadable(self, tensors: Arrays) -> list[UnreadableValues]:
        return find_unreadable(
            tensors, self.model.interface, are_examples=self.signature == EXAMPLES
        )

    def _ask_together(
        self,
        places: list[int],
        columns: Arrays,
        requests: Sequence[RequestInputs],
        found: dict[int, RequestAnswer | Reply],
    ) -> None:
        """Answers requests whose tensors are joined in the order of their places."""
        try:
            if self.signature == RAW and any(_come_as_tensors(requests[place]) for place in places):
                check_tensors(columns, self.model.interface)
            answers = self._answer(columns)
        except Exception as error:
            if len(places) == 1:
                found[places[0]] = refusal(error)
                return
        else:
            end = 0
            for place in places:
                start, end = end, end + row_count(requests[place])
                found[place] = RequestAnswer(answers, slice(start, end))
            return
        middle = len(places) // 2
        cut = sum(row_count(requests[place]) for place in places[:middle])
        for some, rows in ((places[:middle], slice(cut)), (places[middle:], slice(cut, None))):
            part = {name: values[rows] for name, values in columns.items()}
            self._ask_together(some, part, requests, found)

    def _answer(self, columns: Arrays) -> BatchAnswers:
        ask = self.model.predict_examples if self.signature == EXAMPLES else self.model.predict
        answers = BatchAnswers(columns, ask(columns))
        self.told(answers.arrays)
        if self.told_unreadable is not None and (found := self._find_unreadable(columns)):
            self.told_unreadable(found)
        return answers


def to_tensors(one: RequestInputs, interface: ModelInterface) -> Arrays:
    """Those of one request.

    Raises:
      RequestError: it is not what the model takes.
    """
    if isinstance(one, list):
        return _of_rows([one], interface)
    return one if _are_tensors(one) else _of_columns([cast(Columns, one)], interface)


def _to_tensors(
    requests: dict[int, _Values],
    convert: Callable[[Sequence[_Values]], Arrays],
    found: dict[int, RequestAnswer | Reply],
) -> list[tuple[list[int], Arrays]]:
    """Tensors of all requests, or of halves of them, and of halves of these where one is wrong."""
    if not requests:
        return []
    places = list(requests)
    try:
        return [(places, convert(list(requests.values())))]
    except RequestError as error:
        if len(places) == 1:
            found[places[0]] = refusal(error)
            return []
    middle = len(places) // 2
    return [
        part
        for some in (places[:middle], places[middle:])
        for part in _to_tensors({place: requests[place] for place in some}, convert, found)
    ]


def _of_rows(requests: Sequence[Rows], interface: ModelInterface) -> Arrays:
    return rows_to_arrays(list(chain.from_iterable(requests)), interface)


def _of_columns(requests: Sequence[Columns], interface: ModelInterface) -> Arrays:
    together = {name: [*chain.from_iterable(one[name] for one in requests)] for name in requests[0]}
    return to_arrays(together, interface)


def row_count(asked: RequestInputs) -> int:
    """Rows of a request."""
    if isinstance(asked, list):
        return len(asked)
    first: Any = next(iter(asked.values()))
    return len(first)


def _come_as_tensors(asked: RequestInputs) -> bool:
    return not isinstance(asked, list) and _are_tensors(asked)


def _are_tensors(asked: Columns | Arrays) -> TypeGuard[Arrays]:
    return isinstance(next(iter(asked.values())), np.ndarray)


def join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of several requests; lists are as long as the longest."""
    if len(parts) == 1:
        return parts[0]
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    check_size(sum(map(len, parts)), width)
    fill = MISSING.get("string" if parts[0].dtype == object else parts[0].dtype.name, 0)
    together = np.full((sum(map(len, parts)), width), fill, parts[0].dtype)
    end = 0
    for part in parts:
        together[end : end + len(part), : part.shape[1]] = part
        end += len(part)
    return together
