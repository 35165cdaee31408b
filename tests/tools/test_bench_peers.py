"""`make bench-peers`: the split, the verdicts, and results that an interruption leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.models.job import read_rows
from benchmarks.models.report import BASELINES, Result, as_markdown, summarize
from benchmarks.models.splitting import split
from benchmarks.models.tables import Table
from trainer_module.settings import Task

COSTS = dict.fromkeys(
    ("train_seconds", "total_seconds", "megabytes", "latency_ms", "rows_per_second"), 1.0
)
DATED = Table("dated", Task.REGRESSION, "y", lambda: [], dates=("day",))


def _results(task: str, scores: dict[str, list[float]]) -> list[Result]:
    return [
        Result("t", 100, task, seed, model, value, None, COSTS)
        for model, values in scores.items()
        for seed, value in enumerate(values, 1)
    ]


@pytest.mark.parametrize(
    ("task", "ours", "verdict"),
    [
        ("binary", 0.9051, "better"),
        ("binary", 0.896, "as good"),
        ("binary", 0.8949, "worse"),
        ("regression", 0.89, "better"),
        ("regression", 0.908, "as good"),
        ("regression", 0.91, "worse"),
    ],
)
def test_a_verdict_is_beyond_the_margin_of_the_best_baseline(
    task: str, ours: float, verdict: str
) -> None:
    other = 0.8 if task == "binary" else 1.0
    scores = {"auto": [0.1, ours, 1.9], "linear": [other], "boosting": [0.9]}
    (summary,) = summarize(_results(task, scores))
    assert summary.verdict("auto", BASELINES) == verdict


def test_a_model_that_failed_has_no_verdict() -> None:
    results = _results("binary", {"linear": [0.9], "auto": [0.9]})
    results += [replace(results[0], model="trees", score=None, costs={}, error="no memory")]
    (summary,) = summarize(results)
    assert summary.verdict("trees", BASELINES) == ""
    shown = as_markdown([summary], ["auto", "trees"])
    assert "| t | 100 | auc | 0.9 | 0.9 | failed |" in shown
    assert (
        "auto beside the best of linear, boosting, words, characters: better on 0, as good on 1"
        in shown
    )


def test_the_newest_rows_are_the_test(tmp_path: Path) -> None:
    rows = [{"day": f"2024-01-{day:02}", "y": "1"} for day in (7, 2, 9, 4, 10, 1, 8, 3, 6, 5)]
    job = split(DATED, rows, 1, tmp_path, 60, peers_get_all=False)
    days = {
        name: sorted(row["day"][-2:] for row in read_rows(path))
        for name, path in {
            "test": job.test,
            "evaluation": job.ours / "evaluation.csv",
            "train": job.ours / "train.csv",
        }.items()
    }
    assert days["test"] == ["09", "10"]
    assert days["evaluation"] == ["08"]
    assert read_rows(job.peers) == read_rows(job.ours / "train.csv")
    assert job.numbers == ["y"]


def test_more_rows_for_the_peers_do_not_include_the_test(tmp_path: Path) -> None:
    rows = [{"a": str(number), "y": str(number % 2)} for number in range(50)]
    job = split(replace(DATED, dates=()), rows, 3, tmp_path, 60, peers_get_all=True)
    peers, test = ({row["a"] for row in read_rows(path)} for path in (job.peers, job.test))
    assert (len(peers), len(test)) == (40, 10)
    assert not peers & test
