"""Columns that are left out."""

from __future__ import annotations

from typing import ClassVar, Literal

from trainer_module.features.base import BaseFeature


class IgnoredFeature(BaseFeature):
    """A column that the model must not see: an identifier, or one that gives the answer away."""

    type: Literal["ignore"]
    is_input: ClassVar[bool] = False
    may_mix: ClassVar[bool] = True
