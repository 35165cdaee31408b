"""The type of numbers in JSON files that may be NaN or infinite."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

Number = Annotated[
    float,
    BeforeValidator(lambda v: math.nan if v is None else v),
    PlainSerializer(lambda v: v if math.isfinite(v) else None, when_used="json"),
]
"""A number; JSON has no NaN and no infinities, which are written as null; null is read as NaN."""
