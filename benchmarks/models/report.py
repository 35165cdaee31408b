"""The results of models on tables: their medians, the verdicts, and Markdown."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

METRICS = {"binary": "auc", "multiclass": "accuracy", "regression": "rmse"}
MARGIN = 0.005
"""The difference of AUC or accuracy up to which two models are as good."""
ERROR_MARGIN = 0.01
"""The same for errors, as a share of the smaller error."""
BASELINES = ("linear", "boosting", "words", "characters")
"""The peers whose best one is compared with each of our models: words and characters are linear."""
_RIVALS = {f"the best of {', '.join(BASELINES)}": BASELINES, "autogluon": ("autogluon",)}

COSTS = {
    "train_seconds": "training, s",
    "total_seconds": "in all, s",
    "megabytes": "size, MB",
    "latency_ms": "one row, ms",
    "rows_per_second": "rows/s",
}


@dataclass(frozen=True)
class Result:
    """A model that was trained on a table with a seed, or the reason why it could not be."""

    table: str
    rows: int
    task: str
    seed: int
    model: str
    score: float | None = None
    """The AUC, the accuracy or the root mean squared error on the test rows."""
    mae: float | None = None
    """The mean absolute error of a regression."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """The measured seconds, sizes and speeds, by their names in `Outcome`."""
    notes: Sequence[str] = ()
    error: str = ""

    def save(self, path: Path) -> None:
        """Writes the result as JSON; an interruption leaves no part of a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Result:
        """Reads a result that `save` has written."""
        return cls(**json.loads(path.read_text()))

    @property
    def metric(self) -> str:
        """The name of the score."""
        return METRICS[self.task]

    def line(self) -> str:
        """Returns the result as a line of progress."""
        shown = f"{self.metric} {self.score:.4g}" if self.score is not None else self.error
        costs = f" in {self.costs['total_seconds']:.1f} s" if self.costs else ""
        return f"{self.table}, seed {self.seed}, {self.model}: {shown}{costs}"


@dataclass(frozen=True)
class TableSummary:
    """The medians over the seeds of a table, by model."""

    table: str
    rows: int
    task: str
    scores: dict[str, float]
    costs: dict[str, dict[str, float]]
    seeds: dict[str, int]
    """The number of seeds behind each median."""
    errors: dict[str, str]

    def verdict(self, model: str, others: Collection[str]) -> str:
        """Returns whether a model is better or worse than the best of others beyond the margin.

        The result is empty if the model or all others have no score.
        """
        rivals = [self.scores[name] for name in others if name in self.scores]
        if model not in self.scores or not rivals:
            return ""
        ours = self.scores[model]
        if self.task == "regression":
            ahead, margin = min(rivals) - ours, ERROR_MARGIN * min(*rivals, ours)
        else:
            ahead, margin = ours - max(rivals), MARGIN
        return "better" if ahead > margin else "worse" if ahead < -margin else "as good"


def summarize(results: Iterable[Result]) -> list[TableSummary]:
    """Returns the summaries of the tables in the order of the results."""
    by_table: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_table[result.table].append(result)
    return [_summarize_table(found) for found in by_table.values()]


def _summarize_table(results: list[Result]) -> TableSummary:
    done: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.score is not None:
            done[result.model].append(result)
    return TableSummary(
        table=results[0].table,
        rows=results[0].rows,
        task=results[0].task,
        scores={name: statistics.median(r.score or 0.0 for r in of) for name, of in done.items()},
        costs={
            name: {cost: statistics.median(r.costs[cost] for r in of) for cost in COSTS}
            for name, of in done.items()
        },
        seeds={name: len(of) for name, of in done.items()},
        errors={result.model: result.error for result in results if result.error},
    )


def as_json(summaries: Sequence[TableSummary], ours: Sequence[str]) -> dict[str, Any]:
    """Returns the medians and the verdicts for a JSON file."""
    return {
        "tables": [asdict(summary) for summary in summaries],
        "verdicts": {
            model: {
                name: {s.table: s.verdict(model, others) for s in summaries}
                for name, others in _RIVALS.items()
            }
            for model in ours
        },
    }


def as_markdown(summaries: Sequence[TableSummary], ours: Sequence[str]) -> str:
    """Returns the scores, the costs and the verdicts."""
    names = list(dict.fromkeys(name for s in summaries for name in (*s.scores, *s.errors)))
    names.sort(key=lambda name: name in ours)
    scores = [
        [s.table, f"{s.rows:,}", METRICS[s.task], *(_cell(s, name) for name in names)]
        for s in summaries
    ]
    costs = [
        [name, *(_median_cost(summaries, name, cost) for cost in COSTS)]
        for name in names
        if any(name in s.scores for s in summaries)
    ]
    parts = [
        _markdown(["table", "rows", "", *names], scores),
        _markdown(["median of the tables", *COSTS.values()], costs),
        "\n".join(f"- {line}" for line in verdict_lines(summaries, ours)),
    ]
    return "\n\n".join(parts)


def verdict_lines(summaries: Sequence[TableSummary], ours: Sequence[str]) -> Iterator[str]:
    """Yields for each of our models how often it is better, as good and worse than others."""
    for model in ours:
        for name, others in _RIVALS.items():
            found: dict[str, list[str]] = {"better": [], "as good": [], "worse": []}
            for summary in summaries:
                if verdict := summary.verdict(model, others):
                    found[verdict].append(summary.table)
            total = sum(map(len, found.values()))
            if total:
                counts = ", ".join(f"{verdict} on {len(of)}" for verdict, of in found.items())
                least = 1 - len(found["worse"]) / total
                worse = f"; worse: {', '.join(found['worse'])}" if found["worse"] else ""
                yield f"{model} beside {name}: {counts} of {total}, not worse on {least:.0%}{worse}"


def _cell(summary: TableSummary, name: str) -> str:
    if name in summary.scores:
        return f"{summary.scores[name]:.4g}"
    return "failed" if name in summary.errors else ""


def _median_cost(summaries: Sequence[TableSummary], name: str, cost: str) -> str:
    value = statistics.median(s.costs[name][cost] for s in summaries if name in s.costs)
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
