"""Which columns are said to be of no use, and which are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.column_types.facts import Counts
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
        (np.arange(ROWS), "has a different whole number in each of 400 rows, as an identifier has"),
        (
            np.arange(ROWS).astype(np.float32) + 9000,
            "has a different whole number in each of 400 rows, as an identifier has",
        ),
        (
            [f"c-{row}".encode() for row in range(ROWS)],
            "has 400 different values in 400 rows, as an identifier has",
        ),
        (
            [f"the {row} food was really good".encode() for row in range(ROWS)],
            "holds sentences (400 different values in 400 rows), and each sentence would be a "
            "separate category",
        ),
        (LABELS * 2.5 + 1, "alone predicts the label (label leakage): AUC 1.0000"),
        (1 - LABELS, "alone predicts the label (label leakage): AUC 1.0000"),
        (
            np.where(LABELS, b"paid", b"open"),
            "alone predicts the label (label leakage): AUC 1.0000",
        ),
        (LABELS + NUMBERS / 100, "alone predicts the label (label leakage): AUC 1.0000"),
    ],
)
def test_what_speaks_against_a_column(values: Any, said: str) -> None:
    assert found(numbers=NUMBERS, column=values) == {"column": said}


def test_blanks_are_no_values() -> None:
    columns = {"blank": array([b" "] * ROWS), "label": array(LABELS)}
    counts = {"blank": Counts(ROWS, 0, 1, 0)}
    (finding,) = review_columns(columns, "label", Task.BINARY, counts=counts).findings
    assert finding.found == "has no value in any row"


def test_a_copy_names_the_first() -> None:
    same = {"b": 'is the same as "a" in every row', "d": 'is the same as "c" in every row'}
    assert found(a=NUMBERS, b=NUMBERS, c=WORDS, d=WORDS) == same
    # Others come before that have a value of their own in each row, or one for each word.
    others = {"one": RANDOM.normal(size=ROWS), "each": [word[:1] for word in WORDS]}
    assert found(**others, a=NUMBERS, b=NUMBERS, c=WORDS, d=WORDS) == same


def test_classes_and_numbers_are_given_away_too() -> None:
    classes = np.arange(ROWS) % 4
    answers = {"answer": classes * 10.0, "numbers": NUMBERS}
    given = found(Task.MULTICLASS, classes, **answers)
    assert given == {"answer": "alone predicts the label (label leakage): accuracy 1.0000"}
    prices = RANDOM.normal(size=ROWS)
    given = found(Task.REGRESSION, prices, cents=prices * 100, numbers=NUMBERS)
    assert given == {"cents": "alone predicts the label (label leakage): R² of ranks 1.0000"}


def test_gaps_and_other_units_hide_no_copy_of_a_number() -> None:
    prices = RANDOM.lognormal(size=ROWS)
    gaps = [None if row % 3 == 0 else float(np.log(price)) for row, price in enumerate(prices)]
    arrays = {"gaps": array(gaps), "words": array([b"x %g EUR" % price for price in prices])}
    columns = {**arrays, "label": array(prices)}
    for numbers, leaks in (({}, ["gaps"]), ({"words": -prices}, ["gaps", "words"])):
        given = review_columns(columns, "label", Task.REGRESSION, numbers).findings
        assert [finding.column for finding in given if finding.gives_away] == leaks


def test_whether_there_is_a_value_may_give_the_label_away() -> None:
    closed = [f"day {row}".encode() if label else None for row, label in enumerate(LABELS)]
    assert list(found(numbers=NUMBERS, closed=closed)) == ["closed"]


def test_values_of_few_rows_are_no_leak() -> None:
    """In the rows that they were learnt from, all of these tell the label without a mistake."""
    twice = [f"pair {label} {row % 100}".encode() for row, label in enumerate(LABELS)]
    assert list(found(again=twice)) == ["again"], "what comes up again tells it in other rows"
    for seed in range(20):
        random = np.random.default_rng(seed)
        names = random.integers(0, ROWS, ROWS)
        few = [b"%d" % name for name in names]
        honest = LABELS + random.normal(scale=0.5, size=ROWS)
        shown = {"few": few, "honest": honest, "ids": random.permutation(ROWS)}
        assert not any(f.gives_away for f in review(**shown).findings)
        classes = np.arange(ROWS) % 60
        assert not any(f.gives_away for f in review(Task.MULTICLASS, classes, **shown).findings)


def test_rows_that_are_kept_together_are_held_out_together() -> None:
    """A label of each patient is told by the patient's name, but not that of another patient."""
    patients = np.arange(ROWS) % 40
    labels = array(np.random.default_rng(0).permutation(40)[patients] % 2)
    names = array([b"patient %d" % patient for patient in patients])
    columns = {"name": names, "label": labels}
    (finding,) = review_columns(columns, "label", Task.BINARY).findings
    assert finding.gives_away
    assert not review_columns(columns, "label", Task.BINARY, groups=names).findings


def test_the_strongest_column_is_known() -> None:
    strongest = review(numbers=NUMBERS, words=WORDS, good=NUMBERS + LABELS).strongest
    assert strongest is not None
    assert strongest.column == "good"
    assert 0.6 < strongest.value < 0.9


def test_a_rare_class_gives_nothing_away() -> None:
    labels = np.array([0] * (ROWS - 2) + [1, 2])
    assert found(Task.MULTICLASS, labels, numbers=NUMBERS, words=WORDS) == {}


def test_of_a_few_rows_nothing_is_said() -> None:
    assert found(labels=[0, 1] * 10, constant=[1.0] * 20) == {}


def test_the_line_that_leaves_it_out_is_yaml() -> None:
    arrays = {"a b": array([1.0] * ROWS), "label": array(LABELS)}
    (finding,) = review_columns(arrays, "label", Task.BINARY).findings
    assert str(finding) == (
        'column "a b" is 1 in every row; to leave it out: features: {"a b": {type: ignore}}'
    )
