"""What a config says of chance in an evaluation, as Evaluator is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from components.evaluator.dependence import INDEPENDENT, Dependence


@dataclass(frozen=True)
class VerdictSettings:
    """What the config says of chance."""

    confidence: float | None = None
    """Of intervals; None: there are none."""
    lower: tuple[str, ...] = ()
    """Metrics whose `min` the lower end of their interval has to keep."""
    upper: tuple[str, ...] = ()
    """Metrics whose `max` the upper end has to keep."""
    dependence: Dependence = INDEPENDENT
    """Which rows are alike."""

    def to_json(self) -> str:
        """As `from_json` takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> VerdictSettings:
        """From an execution property; empty: as before there was one."""
        given: dict[str, Any] = json.loads(text or "{}")
        dependence = given.get("dependence", {})
        return cls(
            given.get("confidence"),
            tuple(given.get("lower", ())),
            tuple(given.get("upper", ())),
            Dependence(**{**dependence, "ends": tuple(dependence.get("ends", ()))}),
        )


NO_CHANCE = VerdictSettings()
"""Values are taken as they are."""
