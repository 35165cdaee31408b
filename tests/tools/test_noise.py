"""The tables of `make noise`, and its report."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pipeline.exit_codes import EXIT_FAILED, EXIT_NOT_BLESSED, EXIT_PUSHED, EXIT_UNUSABLE
from tools.noise import KINDS, MAX_PUSHED, make_table, report


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_drawn_from_its_kind_and_seed(kind: str) -> None:
    for seed in range(12):
        first, again, other = (make_table(kind, number) for number in (seed, seed, seed + 12))
        assert first.columns.keys() == again.columns.keys()
        for name, values in first.columns.items():
            assert np.array_equal(values, again.columns[name])
        assert len(np.unique(first.columns["label"])) > 1
        assert not np.array_equal(first.columns["x0"], other.columns["x0"])


def _correlations(kind: str) -> list[float]:
    """Between a feature of numbers and the label of each table of a regression."""
    tables = [make_table(kind, seed) for seed in range(2, 302, 3)]
    return [
        float(np.corrcoef(values, table.columns["label"])[0, 1] * np.sqrt(len(values)))
        for table in tables
        for name, values in table.columns.items()
        if name == "x0" and values.dtype.kind == "f"
    ]


def test_no_column_says_anything_of_the_label() -> None:
    scaled = _correlations("plain")
    assert abs(np.mean(scaled)) < 3 / np.sqrt(len(scaled))
    assert 0.7 < np.std(scaled) < 1.3


@pytest.mark.parametrize("kind", ["grouped", "ordered"])
def test_rows_that_are_alike_look_as_if_a_column_did(kind: str) -> None:
    """Judged as independent rows, such tables are more often taken for a signal."""
    assert np.std(_correlations(kind)) > 1.1


@pytest.mark.parametrize(
    ("pushed", "failed", "is_good"), [(0, 0, True), (7, 0, True), (8, 0, False), (0, 1, False)]
)
def test_too_many_pushed_and_any_failure_are_told(pushed: int, failed: int, is_good: bool) -> None:
    codes = Counter(
        {EXIT_PUSHED: pushed, EXIT_FAILED: failed, EXIT_NOT_BLESSED: 100 - pushed - failed}
    )
    line, found = report("plain", codes)
    assert found is is_good
    assert MAX_PUSHED == 0.07
    assert f"{pushed / (100 - failed):.1%}" in line


def test_nothing_that_ran_is_no_success() -> None:
    assert not report("plain", Counter({EXIT_FAILED: 3}))[1]


def test_data_that_is_refused_is_not_pushed() -> None:
    line, is_good = report("plain", Counter({EXIT_UNUSABLE: 50, EXIT_PUSHED: 1}))
    assert is_good
    assert "2.0%" in line
