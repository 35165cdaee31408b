"""Weights that nothing can be weighed by are refused, with their row."""

from __future__ import annotations

from pathlib import Path

import pytest


def write(folder: Path, odd: str) -> None:
    """Rows of which one has an odd weight."""
    rows = [f"{i % 2},{i},{i / 4}" for i in range(20)]
    lines = ["label,x,trust", *rows, f"1,0,{odd}", *rows]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("odd", "shown"), [("-0.5", "-0.5"), ("", "missing"), ("nan", "nan"), ("1e39", "inf")]
)
def test_a_weight_of_no_use(tmp_path, refusal, odd, shown):
    write(tmp_path, odd)
    message = refusal(tmp_path, weight="trust")
    assert f"Weight 'trust' is {shown} in row 22 of {tmp_path}/a.csv: every row" in message


def test_weights_are_numbers(tmp_path, refusal):
    rows = "\n".join(f"{i % 2},{i},much" for i in range(20))
    (tmp_path / "a.csv").write_text(f"label,x,trust\n{rows}\n")
    assert "Weight 'trust' is much in row 2 of" in refusal(tmp_path, weight="trust")


def test_there_is_no_such_column(tmp_path, refusal):
    write(tmp_path, "0")
    message = refusal(tmp_path, weight="trusts")
    assert "There is no column 'trusts', which data.weight names; did you mean 'trust'?" in message


def test_no_row_counts(tmp_path, refusal):
    rows = "\n".join(f"{i % 2},{i},0" for i in range(40))
    (tmp_path / "a.csv").write_text(f"label,x,trust\n{rows}\n")
    message = refusal(tmp_path, weight="trust")
    assert message.startswith("Weight 'trust' is 0 in all ")
    assert "rows of split 'train', so that none of them would count" in message


def test_zero_is_a_weight(tmp_path, generate):
    write(tmp_path, "0")
    assert sum(map(len, generate(tmp_path, weight="trust").values())) == 41
