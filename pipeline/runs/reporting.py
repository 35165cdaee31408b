"""Completes the summary of a run that has ended, and writes the report."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from components.disk import is_disk_full
from pipeline.layout import RunLayout
from pipeline.records.details import StepCost
from pipeline.records.run_folders import StoredRun, read_earlier
from pipeline.records.summary import RunSummary
from pipeline.run_context import RunContext
from pipeline.runs.console import show_path
from pipeline.runs.details import collect_details
from trainer_module.typed_words import typed_command

logger = logging.getLogger(__name__)


def how_to_report() -> str:
    """Returns the command that writes the report of the last run."""
    return f"`{typed_command('report')}` writes it"


def report_run(
    context: RunContext,
    files: RunLayout,
    summary: RunSummary,
    costs: Mapping[str, StepCost] | None = None,
) -> str:
    """Adds the details to the summary of a run, and writes the report. No error fails the run.

    The caller writes the summary.

    Args:
      context: the context of the run.
      files: the files of the run.
      summary: the summary of the run, which has ended.
      costs: the measured costs of components, by name.

    Returns:
      A line with the path of the report, or with the reason why there is no report.
    """
    try:
        collect_details(context, summary, costs)
        from pipeline.report.page import write_report

        history = read_earlier(StoredRun(summary.pipeline, files))
        examples = summary.details.read_worst_examples() if summary.details else None
        write_report(summary, files.report, examples, history)
    except Exception as error:
        logger.exception("The report could not be written")
        if is_disk_full(error):
            return f"report: not written (the disk is full); {how_to_report()}"
        return f"report: not written ({type(error).__name__}: {error})"[:300]
    return f"report: {show_path(files.report)}"
