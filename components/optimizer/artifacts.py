"""The artifact of the variants: a folder for each, and what was found about them."""

from __future__ import annotations

from tfx.types.artifact import Artifact

VARIANTS_KEY = "variants"
"""The Optimizer's output, and an input of Pusher."""


class ModelVariants(Artifact):
    """Variants of one model: `NAME/variant.json` with its files, and `report.json`."""

    TYPE_NAME = "components.ModelVariants"
    """As stores of metadata have it."""
