"""Leaves slices of private columns, whose names are values, out of texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pipeline.records.summary import RunSummary

HIDDEN = "a slice of a private column"
"""The text in place of a slice's name."""


def is_private(name: str, private: Collection[str]) -> bool:
    """Returns whether the name of a slice, such as `sex=f, age=30`, has a private value.

    Args:
      private: the columns of `report.private`.
    """
    return any(f"{column}=" in name for column in private)


def without_private_slices(summary: RunSummary, private: Collection[str]) -> RunSummary:
    """Returns a summary whose notes, reasons and variants name no slices of private columns.

    Args:
      private: the columns of `report.private`.
    """
    found = (name for name in summary.slices if is_private(name, private))
    # The name of a slice may begin with the name of another.
    names = sorted(found, key=len, reverse=True)
    if not names:
        return summary
    fields = ("notes", "reason", "variants")
    return summary.model_copy(
        update={field: _replace(getattr(summary, field), names) for field in fields}
    )


def _replace(value: Any, names: Iterable[str]) -> Any:
    if isinstance(value, str):
        for name in names:
            value = value.replace(name, HIDDEN)
        return value
    if isinstance(value, dict):
        return {key: _replace(item, names) for key, item in value.items()}
    return [_replace(item, names) for item in value] if isinstance(value, list) else value
