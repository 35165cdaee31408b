"""What a config says of chance in an evaluation, as Evaluator is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

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
    others: Mapping[str, bool] = field(default_factory=dict)
    """Metrics without thresholds that speak against a model where they are worse than in service
    beyond noise, and whether more of each is better."""
    deciding: str = ""
    """The first metric with a threshold, in which a tie is kept or not; empty: there is none."""
    keeps_ties: bool | None = None
    """Whether a model that is worse in that metric within noise leaves the one in service there;
    None: where both have learnt from the same data."""
    not_compared: str = ""
    """What is wrong with the model in service, which is left out then; empty: nothing."""

    def to_json(self) -> str:
        """As `from_json` takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> VerdictSettings:
        """From an execution property; empty: as before there was one."""
        return _AS_JSON.validate_python(json.loads(text or "{}"))


_AS_JSON = TypeAdapter(VerdictSettings)
NO_CHANCE = VerdictSettings()
"""Values are taken as they are."""
