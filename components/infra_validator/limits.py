"""What a certificate may take, and how far answers may be apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class CertificateLimits:
    """Of one certificate."""

    tolerance: float
    """The largest difference of two answers: of scores as such, of other numbers a share."""
    timeout: float
    """Seconds for all of it."""
    memory: float
    """GiB of the process."""

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> CertificateLimits:
        """What `to_json` gave."""
        return cls(**content)
