"""The proposed config: the values of its keys, and a comment on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_module.settings.tasks import BaseTask

COMMENTS = {
    "name": "of the pipeline, its output folder and the served model",
    "data.path": "a file, a folder, or a glob such as data/*.csv",
    "data.label": "the column to predict",
    "data.csv": "what is not detected anew in each file",
    "data.splits": "the files of each split",
    "data.stratify": "each split gets its share of each class",
    "data.unlabelled": "rows without a label are left out",
    "features": "other types follow from the data; `plan` lists them",
    "evaluate.metrics": "the first decides whether a model is pushed",
}
"""The usual comments, by dotted key."""
_RARE = 0.05
"""The share of the rarer of two classes below which the average precision decides."""


@dataclass(frozen=True)
class Proposal:
    """A proposed config, with a comment for each key."""

    config: Mapping[str, Any]
    """The config as a mapping of its keys."""
    comments: Mapping[str, str] = field(default_factory=dict)
    """The comments by dotted key, such as `data.label`, in addition to `COMMENTS`."""
    rows: str = ""
    """The rows from which the proposal follows, such as `all 200 rows` or `36 pictures of 3
    classes`; empty for IDX files."""
    columns: str = ""
    """The number of columns of each type, or an empty string."""
    notes: tuple[str, ...] = ()
    table: str = ""
    """The content of a table to write at `data.path`, or an empty string."""

    def comment(self, key: str) -> str:
        """Returns the comment on a dotted key, or an empty string."""
        return self.comments.get(key) or COMMENTS.get(key, "")


def choose_metrics(task: BaseTask, shares: list[float]) -> dict[str, list[str]]:
    """Returns the section `evaluate` with the metrics of a task.

    Args:
      shares: the share of each class in the rows, or an empty list.
    """
    metrics = list(task.usual_metrics())
    if task.kind == "binary" and min(shares, default=1.0) < _RARE:
        # A model that never predicts the rare class still has a high accuracy.
        metrics = ["average_precision", "auc", "log_loss"]
    return {"metrics": metrics}


def task_value(task: BaseTask) -> str | dict[str, Any]:
    """Returns the value of the key `task`: the name of the task, or a mapping with its options."""
    return task.model_dump(exclude_defaults=True) if task.has_options else task.kind


def task_comment(task: BaseTask, are_numbers: bool) -> str:
    """Returns the comment on a task: what it predicts, and the alternatives.

    Args:
      are_numbers: whether the labels are numbers.
    """
    what, alternatives = {
        "binary": ("one of two classes", []),
        "multiclass": ("one of several classes", ["ordinal", "regression"] if are_numbers else []),
        "ordinal": ("classes in order", ["multiclass", *(["regression"] if are_numbers else [])]),
        "regression": ("a number", ["count", *(["multiclass"] if are_numbers else [])]),
        "count": ("a number of events", ["regression"]),
    }[task.kind]
    return f"{what}; also possible: {', '.join(alternatives)}" if alternatives else what
