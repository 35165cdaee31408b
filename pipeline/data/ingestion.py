"""How the files of a config become examples: what is known of that before TFX is imported."""

from __future__ import annotations

from dataclasses import dataclass

from components.example_gen.formats import ExampleGenSettings


@dataclass(frozen=True)
class Ingestion:
    """How files become examples, and which schema they have to keep."""

    settings: ExampleGenSettings
    curated_schema: str | None
    """The path of the user's own schema."""
    fingerprint: str
    """Changes with what decides how files become examples, but for the files."""

    @property
    def schema_revision(self) -> str:
        """Changes with what a user wrote into the schema."""
        return self.settings.schema_revision
