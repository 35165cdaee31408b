"""The rows that a certificate is about."""

from __future__ import annotations

from dataclasses import dataclass

CERTIFICATE_FOLDER = "certificate"
"""In an InfraBlessing: what belongs into the version, below `assets.extra`."""
CERTIFICATE_FILE = "certificate.json"


@dataclass(frozen=True)
class GoldenRow:
    """A row that a model is asked for."""

    says: str
    """What is special about it, in words."""
    example: bytes
    """A serialised tf.Example with its label."""
