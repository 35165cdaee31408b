"""The artifact of the variants: a folder for each, and the report."""

from __future__ import annotations

from tfx.types.artifact import Artifact

from components.copying import read_text, write_text
from components.optimizer.report import REPORT_FILE, OptimizerReport

VARIANTS_KEY = "variants"
"""The key of the Optimizer's output, and of an input of Pusher."""


class ModelVariants(Artifact):
    """Variants of one model: `NAME/variant.json` with its files, and `report.json`."""

    TYPE_NAME = "components.ModelVariants"
    """The name of the type in metadata stores."""


def write_report(folder: str, report: OptimizerReport) -> None:
    """Writes the report into the existing folder of its artifact."""
    write_text(report.model_dump_json(indent=2), folder, REPORT_FILE)


def read_report(folder: str) -> OptimizerReport | None:
    """Returns the report in the folder of an artifact; None if there is none."""
    text = read_text(folder, REPORT_FILE)
    return None if text is None else OptimizerReport.model_validate_json(text)
