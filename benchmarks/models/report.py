"""The printed table of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table as Shown

from benchmarks.models.tables import Table
from trainer_module.settings import Task

METRICS = {Task.BINARY: "auc", Task.MULTICLASS: "accuracy", Task.REGRESSION: "rmse"}
MARGIN = 0.005
"""The margin of AUC and accuracy. For errors, the relative margin is `ERROR_MARGIN`."""
ERROR_MARGIN = 0.01
PEERS = ("linear", "boosting")


@dataclass(frozen=True)
class Score:
    """The scores of a table."""

    table: Table
    rows: int
    medians: dict[str, float]
    """The median scores by peer, and by the kind of our model."""
    seconds: float
    """The seconds of our training and export."""

    def verdict(self, kind: str) -> str:
        """Returns whether our model is better or worse than the best peer, beyond the margin."""
        ours, theirs = self.medians[kind], [self.medians[n] for n in PEERS if n in self.medians]
        if self.table.task is Task.REGRESSION:
            ahead, margin = min(theirs) - ours, ERROR_MARGIN * min(theirs)
        else:
            ahead, margin = ours - max(theirs), MARGIN
        return "better" if ahead > margin else "worse" if ahead < -margin else "as good"

    def cells(self, kinds: list[str]) -> list[str]:
        """Returns the cells of the score's row in the printed table."""
        names = (*PEERS, *kinds)
        shown = [f"{self.medians[n]:.4g}" if n in self.medians else "" for n in names]
        verdicts = [self.verdict(kind) for kind in kinds]
        metric = METRICS[self.table.task]
        return [self.table.name, str(self.rows), metric, *shown, *verdicts, f"{self.seconds:.0f}"]

    def line(self, kinds: list[str]) -> str:
        """Returns the score's row as a line of progress."""
        return " | ".join(self.cells(kinds))

    def as_json(self) -> dict[str, Any]:
        """Returns the scores for a JSON file."""
        return {"table": self.table.name, "rows": self.rows, **self.medians}


def as_table(scores: list[Score], kinds: list[str]) -> Shown:
    """Returns a table of all scores."""
    verdicts = [f"{kind} is" for kind in kinds]
    shown = Shown("table", "rows", "metric", *PEERS, *kinds, *verdicts, "seconds")
    for score in scores:
        shown.add_row(*score.cells(kinds))
    return shown
