"""The artifact of the variants, with a folder for each variant and the report."""

from __future__ import annotations

from tfx.types.artifact import Artifact

from components.copying import read_text, write_text
from components.optimizer.report import REPORT_FILE, OptimizerReport

VARIANTS_KEY = "variants"
"""The key of the Optimizer's output, and of an input of the Pusher."""


class ModelVariants(Artifact):
    """The variants of a model: a folder `NAME` with `variant.json` for each, and `report.json`."""

    TYPE_NAME = "components.ModelVariants"


def write_report(folder: str, report: OptimizerReport) -> None:
    """Writes the report into the folder of an artifact, which must exist."""
    write_text(report.model_dump_json(indent=2), folder, REPORT_FILE)


def read_report(folder: str) -> OptimizerReport | None:
    """Returns the report in the folder of an artifact, or None if there is no report."""
    text = read_text(folder, REPORT_FILE)
    return None if text is None else OptimizerReport.model_validate_json(text)
