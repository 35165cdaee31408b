"""What is predicted."""

from __future__ import annotations

from enum import StrEnum


class Task(StrEnum):
    """What the model predicts."""

    BINARY = "binary"
    MULTICLASS = "multiclass"
    REGRESSION = "regression"

    @property
    def is_classification(self) -> bool:
        """Whether the label is a class."""
        return self is not Task.REGRESSION
