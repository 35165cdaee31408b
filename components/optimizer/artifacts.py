"""The artifact of the variants: a folder for each, and what was found about them."""

from __future__ import annotations

import posixpath

from tfx.dsl.io import fileio
from tfx.types.artifact import Artifact

from components.optimizer.report import REPORT_FILE, OptimizerReport

VARIANTS_KEY = "variants"
"""The Optimizer's output, and an input of Pusher."""


class ModelVariants(Artifact):
    """Variants of one model: `NAME/variant.json` with its files, and `report.json`."""

    TYPE_NAME = "components.ModelVariants"
    """As stores of metadata have it."""


def write_report(folder: str, report: OptimizerReport) -> None:
    """Writes the report into the folder of its artifact, which exists."""
    with fileio.open(posixpath.join(folder, REPORT_FILE), "w") as file:
        file.write(report.model_dump_json(indent=2))


def read_report(folder: str) -> OptimizerReport | None:
    """The report in the folder of an artifact; None if there is none."""
    path = posixpath.join(folder, REPORT_FILE)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "r") as file:
        return OptimizerReport.model_validate_json(file.read())
