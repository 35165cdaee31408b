"""A class may be called NaN, also where `init` chooses the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.first_config.proposing import propose


@pytest.mark.parametrize("name", ["NaN", "nan"])
def test_a_class_called_nan_counts_for_the_task(tmp_path: Path, name: str) -> None:
    rows = [f"{number / 7:.3f},{(name, 'bad', 'ok')[number % 3]}" for number in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(["x,label", *rows]) + "\n")
    proposal = propose(str(tmp_path / "t.csv"), "label", min)
    assert proposal.config["task"] == "multiclass"
