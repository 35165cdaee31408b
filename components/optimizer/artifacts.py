"""The artifact of the variants: a folder for each, and what was found about them."""

from __future__ import annotations

from tfx.types.artifact import Artifact

from components.copying import read_text, write_text
from components.optimizer.report import REPORT_FILE, OptimizerReport

VARIANTS_KEY = "variants"
"""The Optimizer's output, and an input of Pusher."""


class ModelVariants(Artifact):
    """Variants of one model: `NAME/variant.json` with its files, and `report.json`."""

    TYPE_NAME = "components.ModelVariants"
    """As stores of metadata have it."""


def write_report(folder: str, report: OptimizerReport) -> None:
    """Writes the report into the folder of its artifact, which exists."""
    write_text(report.model_dump_json(indent=2), folder, REPORT_FILE)


def read_report(folder: str) -> OptimizerReport | None:
    """Returns the report in the folder of an artifact; None if there is none."""
    text = read_text(folder, REPORT_FILE)
    return None if text is None else OptimizerReport.model_validate_json(text)
