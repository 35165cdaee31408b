"""Settings of cross-validation."""

from __future__ import annotations

from pydantic import Field

from trainer_module.sections import Settings


class CrossValidation(Settings):
    """Whether trainings on parts of the train split say how much the metrics vary."""

    folds: int | None = Field(default=None, ge=2)
    """Cross-validation: the train split in so many parts, each held out from a training of its
    own; what that takes comes on top of the training of the model."""
