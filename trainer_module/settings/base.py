"""What all settings share."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of every section: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Task(StrEnum):
    """What the model predicts."""

    BINARY = "binary"
    MULTICLASS = "multiclass"
    REGRESSION = "regression"

    @property
    def is_classification(self) -> bool:
        """Whether the label is a class."""
        return self is not Task.REGRESSION
