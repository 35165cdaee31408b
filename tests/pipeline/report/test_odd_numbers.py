"""NaN and infinity in any number of a run's records: the files are read again and shown."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from components.evaluator.explanation.record import WorstExamples
from components.evaluator.intervals import EvaluationIntervals
from pipeline.records.summary import RunSummary, Status
from pipeline.report.lineage_events import lineage_text
from pipeline.report.page import make_report
from pipeline.report.run_metrics import run_metrics

TEXTS = {"started": "2026-01-02T03:04:05+00:00"}
CLOCKS = ("seconds", "cpu_seconds")
"""The fields of measured times, which are finite."""


def filled(kind: Any, number: float, name: str = "") -> Any:
    """Returns a value of a type in which every field has a value and every float is `number`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return filled(arguments[0], number, name)
    if origin in (types.UnionType, typing.Union):
        return filled(float if float in arguments else arguments[0], number, name)
    if origin is list:
        return [filled(arguments[0], number)] * 2
    if origin is tuple:
        return tuple(filled(argument, number) for argument in arguments)
    if origin is dict:
        return {filled(arguments[0], number): filled(arguments[1], number)}
    if isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
        hints = typing.get_type_hints(kind, include_extras=True)
        names = getattr(kind, "model_fields", hints)
        return kind(**{field: filled(hints[field], number, field) for field in names})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    simple = {
        float: 1.0 if name in CLOCKS else number,
        int: 3,
        bool: True,
        str: TEXTS.get(name, "text"),
    }
    return simple.get(kind, number)  # `Any` and `object` may be numbers, too.


def floats(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yields the floats in the content of a model, with their paths."""
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in pairs:
            yield from floats(child, f"{path}.{key}")


@pytest.mark.parametrize("kind", [RunSummary, WorstExamples, EvaluationIntervals])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.25])
def test_every_number_is_read_again(kind: type[BaseModel], number: float) -> None:
    written = filled(kind, number)
    read = kind.model_validate_json(written.model_dump_json())
    kept = dict(floats(read.model_dump()))
    expected = dict(floats(written.model_dump()))
    assert len(expected) >= 5
    if math.isfinite(number):
        assert kept == expected
    else:
        finite = {path.rpartition(".")[2] for path, value in kept.items() if math.isfinite(value)}
        assert finite <= set(CLOCKS)


@pytest.mark.slow
@pytest.mark.parametrize("number", [math.nan, math.inf, 1e-320])
def test_every_number_is_shown(number: float) -> None:
    summary = filled(RunSummary, number).model_copy(update={"status": Status.PUSHED})
    page = make_report(summary, filled(WorstExamples, number), [summary])
    assert '<section id="evaluation"' in page
    assert not re.search(r"[> ]nan[<.]", page.lower())
    assert lineage_text(summary)
    assert run_metrics(summary)
