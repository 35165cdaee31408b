"""An example of a row with neutral values, in the JSON of requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from components.serving.model import FeatureColumn, Servable
from trainer_module.export.interface import RawColumn

_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAGElEQVR42mNcwIAfMDGMKhhVMKpghCoAAButAODZubsA"
    "AAAAAElFTkSuQmCC"
)
"""A grey PNG of 32 by 32 pixels, in base64."""


def example_row(model: Servable) -> dict[str, Any]:
    """Returns a row that the model can predict, by request name, without values of the data."""
    return {column.request: _neutral_value(column) for column in model.interface.columns}


def _neutral_value(column: RawColumn) -> Any:
    """Returns zeros, empty texts, or a grey picture."""
    if column.picture:
        return {"b64": _PICTURE}
    if isinstance(column, FeatureColumn) and column.shape:
        return np.zeros(column.shape, int).tolist()
    value = "" if column.dtype == "string" else 0
    if column.width == 1:
        return value
    return [value] * (column.width or 0)
