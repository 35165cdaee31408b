"""Columns that are useless or leak the label are found, others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from components.example_validator.review import Review, review_columns
from trainer_module.settings import Task

ROWS = 400
RANDOM = np.random.default_rng(0)
LABELS = (np.arange(ROWS) * 7 % 10 < 4).astype(np.int64)
NUMBERS = RANDOM.normal(size=ROWS).astype(np.float32)
WORDS = np.array([b"red", b"green", b"blue"])[RANDOM.integers(0, 3, ROWS)]


def array(values: Any) -> pa.Array:
    return pa.array(list(values))


def review(task: Task = Task.BINARY, labels: Any = LABELS, **columns: Any) -> Review:
    arrays = {name: array(values) for name, values in columns.items()}
    return review_columns({**arrays, "label": array(labels)}, "label", task)


def found(task: Task = Task.BINARY, labels: Any = LABELS, **columns: Any) -> dict[str, str]:
    findings = review(task, labels, **columns).findings
    return {finding.column: finding.found for finding in findings}


def test_useful_columns_have_no_finding() -> None:
    missing = [None if row % 3 else 1.0 for row in range(ROWS)]
    few = np.arange(ROWS) % 5
    assert found(numbers=NUMBERS, words=WORDS, missing=missing, few=few) == {}
    assert found(numbers=NUMBERS + LABELS) == {}, "a good feature gives nothing away"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([7.0] * ROWS, "is 7 in every row"),
        (pa.nulls(ROWS, pa.float32()).to_pylist(), "has no value in any row"),
        (np.arange(ROWS), "whole number in each of 400 rows"),
        (
            [f"c-{row}".encode() for row in range(ROWS)],
            "400 different values",
        ),
        (
            [f"the {row} food was really good".encode() for row in range(ROWS)],
            "sentences",
        ),
        (LABELS * 2.5 + 1, "(label leakage): AUC 1.0000"),
        (
            np.where(LABELS, b"paid", b"open"),
            "(label leakage): AUC 1.0000",
        ),
    ],
)
def test_useless_or_leaking_column_has_a_finding(values: Any, reason: str) -> None:
    findings = found(numbers=NUMBERS, column=values)
    assert list(findings) == ["column"]
    assert reason in findings["column"]


def test_copy_of_a_column_has_a_finding() -> None:
    same = {"b": 'is the same as "a" in every row', "d": 'is the same as "c" in every row'}
    assert found(a=NUMBERS, b=NUMBERS, c=WORDS, d=WORDS) == same
    # Others come before that have a value of their own in each row, or one for each word.
    others = {"one": RANDOM.normal(size=ROWS), "each": [word[:1] for word in WORDS]}
    assert found(**others, a=NUMBERS, b=NUMBERS, c=WORDS, d=WORDS) == same


def test_leaks_of_classes_and_numbers_are_found() -> None:
    classes = np.arange(ROWS) % 4
    answers = {"answer": classes * 10.0, "numbers": NUMBERS}
    given = found(Task.MULTICLASS, classes, **answers)
    assert "accuracy 1.0000" in given.pop("answer")
    assert not given
    prices = RANDOM.normal(size=ROWS)
    given = found(Task.REGRESSION, prices, cents=prices * 100, numbers=NUMBERS)
    assert "1.0000" in given.pop("cents")
    assert not given


def test_missing_values_may_leak_the_label() -> None:
    closed = [f"day {row}".encode() if label else None for row, label in enumerate(LABELS)]
    assert list(found(numbers=NUMBERS, closed=closed)) == ["closed"]


def test_values_of_few_rows_are_no_leak() -> None:
    """Each of these predicts the label of its own rows without a mistake."""
    twice = [f"pair {label} {row % 100}".encode() for row, label in enumerate(LABELS)]
    assert list(found(again=twice)) == ["again"]
    for seed in range(5):
        random = np.random.default_rng(seed)
        names = random.integers(0, ROWS, ROWS)
        few = [b"%d" % name for name in names]
        honest = LABELS + random.normal(scale=0.5, size=ROWS)
        shown = {"few": few, "honest": honest, "ids": random.permutation(ROWS)}
        assert not any(f.gives_away for f in review(**shown).findings)
        classes = np.arange(ROWS) % 60
        assert not any(f.gives_away for f in review(Task.MULTICLASS, classes, **shown).findings)


def test_leak_within_groups_is_no_leak() -> None:
    """The name of a patient predicts the label of that patient alone."""
    patients = np.arange(ROWS) % 40
    labels = array(np.random.default_rng(0).permutation(40)[patients] % 2)
    names = array([b"patient %d" % patient for patient in patients])
    columns = {"name": names, "label": labels}
    (finding,) = review_columns(columns, "label", Task.BINARY).findings
    assert finding.gives_away
    assert not review_columns(columns, "label", Task.BINARY, groups=names).findings


def test_strongest_column_is_reported() -> None:
    strongest = review(numbers=NUMBERS, words=WORDS, good=NUMBERS + LABELS).strongest
    assert strongest is not None
    assert strongest.column == "good"
    assert 0.6 < strongest.value < 0.9


def test_finding_has_a_line_of_yaml() -> None:
    arrays = {"no": array([1.0] * ROWS), "label": array(LABELS)}
    (finding,) = review_columns(arrays, "label", Task.BINARY).findings
    line = str(finding).rpartition("leave it out: ")[2]
    assert yaml.safe_load(line) == {"features": {"no": {"type": "ignore"}}}
