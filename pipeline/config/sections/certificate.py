"""What a model has to show before it is pushed, besides its metrics."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainer_module.sections import Settings
from trainer_module.settings.durations import SomeTime


class CertificateSettings(Settings):
    """That every way of asking a model gives the same answers, or it is not pushed."""

    enabled: bool = True
    """Whether there is one; `certificate: false` stands for a section that says so."""
    tolerance: float = Field(default=0.001, gt=0)
    """The largest difference of answers that count as equal: of scores as such, of other numbers
    as a share of the expected one, or of the output's usual size where that is larger."""
    timeout: SomeTime = timedelta(minutes=10)
    """How long a model may take to answer all golden rows."""
    memory: float = Field(default=8.0, gt=0)
    """How many GiB it may take to answer them."""


def _as_mapping(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


AnyCertificate = Annotated[
    CertificateSettings,
    BeforeValidator(_as_mapping, json_schema_input_type=Literal[False] | CertificateSettings),
]
"""`false`, or a mapping."""
