"""What a person sees of a run's outcome."""

from __future__ import annotations

import io

from pipeline.records.summary import RunSummary
from pipeline.runs.console import RunConsole


def test_folds_are_a_table_with_mean_and_deviation() -> None:
    found = {
        "loss": {"values": [0.5, 0.7], "mean": 0.6, "deviation": 0.1414},
        "auc": {"values": [0.81, 0.79], "mean": 0.8, "deviation": 0.0141},
    }
    summary = RunSummary(
        run_id="1", pipeline="p", started="now", strategy="default", training={"folds": found}
    )
    stream = io.StringIO()
    RunConsole(stream).conclude(summary, [])
    rows = [line.split() for line in stream.getvalue().splitlines() if line]
    assert rows[:5] == [
        ["fold", "loss", "auc"],
        ["1", "0.5000", "0.8100"],
        ["2", "0.7000", "0.7900"],
        ["mean", "0.6000", "0.8000"],
        ["std.", "dev.", "0.1414", "0.0141"],
    ]
