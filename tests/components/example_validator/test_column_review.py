"""Which columns are said to be of no use, and which are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.example_validator.column_review import review_columns
from trainer_module.settings import Task

ROWS = 400
RANDOM = np.random.default_rng(0)
LABELS = (np.arange(ROWS) * 7 % 10 < 4).astype(np.int64)
NUMBERS = RANDOM.normal(size=ROWS).astype(np.float32)
WORDS = np.array([b"red", b"green", b"blue"])[RANDOM.integers(0, 3, ROWS)]


def array(values: Any) -> pa.Array:
    return pa.array(list(values))


def found(task: Task = Task.BINARY, labels: Any = LABELS, **columns: Any) -> dict[str, str]:
    arrays = {name: array(values) for name, values in columns.items()}
    findings = review_columns({**arrays, "label": array(labels)}, "label", task)
    return {finding.column: finding.found for finding in findings}


def test_useful_columns_are_left_alone() -> None:
    missing = [None if row % 3 else 1.0 for row in range(ROWS)]
    few = np.arange(ROWS) % 5
    assert found(numbers=NUMBERS, words=WORDS, missing=missing, few=few) == {}
    assert found(numbers=NUMBERS + LABELS) == {}, "a good feature gives nothing away"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([7.0] * ROWS, "is 7 in every row"),
        ([b"EUR"] * ROWS, "is 'EUR' in every row"),
        (pa.nulls(ROWS, pa.float32()).to_pylist(), "has no value in any row"),
        (np.arange(ROWS), "has another whole number in each of 400 rows, as an identifier has"),
        (
            np.arange(ROWS).astype(np.float32) + 9000,
            "has another whole number in each of 400 rows, as an identifier has",
        ),
        (
            [f"c-{row}".encode() for row in range(ROWS)],
            "has 400 different values in 400 rows, as an identifier has",
        ),
        (
            [f"the {row} food was really good".encode() for row in range(ROWS)],
            "holds sentences (400 different values in 400 rows), each of which would be a category "
            "of its own",
        ),
        (LABELS * 2.5 + 1, "gives the label away (AUC 1.0000 by itself)"),
        (1 - LABELS, "gives the label away (AUC 1.0000 by itself)"),
        (
            np.where(LABELS, b"paid", b"open"),
            "gives the label away (AUC 1.0000 by itself)",
        ),
        (LABELS + NUMBERS / 100, "gives the label away (AUC 1.0000 by itself)"),
    ],
)
def test_what_speaks_against_a_column(values: Any, said: str) -> None:
    assert found(numbers=NUMBERS, column=values) == {"column": said}


def test_a_copy_names_the_first() -> None:
    same = {"b": 'is the same as "a" in every row', "d": 'is the same as "c" in every row'}
    assert found(a=NUMBERS, b=NUMBERS, c=WORDS, d=WORDS) == same


def test_classes_and_numbers_are_given_away_too() -> None:
    classes = np.arange(ROWS) % 4
    answers = {"answer": classes * 10.0, "numbers": NUMBERS}
    given = found(Task.MULTICLASS, classes, **answers)
    assert given == {"answer": "gives the label away (accuracy 1.0000 by itself)"}
    prices = RANDOM.normal(size=ROWS)
    given = found(Task.REGRESSION, prices, cents=prices * 100, numbers=NUMBERS)
    assert given == {"cents": "gives the label away (rank correlation 1.0000)"}


def test_a_rare_class_gives_nothing_away() -> None:
    labels = np.array([0] * (ROWS - 2) + [1, 2])
    assert found(Task.MULTICLASS, labels, numbers=NUMBERS, words=WORDS) == {}


def test_of_a_few_rows_nothing_is_said() -> None:
    assert found(labels=[0, 1] * 10, constant=[1.0] * 20) == {}


def test_the_line_that_leaves_it_out_is_yaml() -> None:
    arrays = {"a b": array([1.0] * ROWS), "label": array(LABELS)}
    (finding,) = review_columns(arrays, "label", Task.BINARY)
    assert str(finding) == (
        'column "a b" is 1 in every row; to leave it out: features: {"a b": {type: ignore}}'
    )
