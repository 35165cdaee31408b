"""Completes the summary of a run that has ended; writes the report and files for other tools."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from components.disk import is_disk_full, write_atomically
from pipeline.layout import Layout, RunLayout
from pipeline.records.details import StepCost
from pipeline.records.run_folders import StoredRun
from pipeline.records.summary import RunSummary
from pipeline.report.lineage_events import lineage_text
from pipeline.report.run_metrics import run_metrics
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

    Returns:
      A line with the path of the report, or with the reason why there is no report.
    """
    try:
        collect_details(context, summary, costs)
        from pipeline.report.page import write_report

        write_report(StoredRun(summary.pipeline, files), summary)
    except Exception as error:
        logger.exception("The report could not be written")
        if is_disk_full(error):
            return f"report: not written (the disk is full); {how_to_report()}"
        return f"report: not written ({type(error).__name__}: {error})"[:300]
    return f"report: {show_path(files.report)}"


def write_for_other_tools(summary: RunSummary, layout: Layout) -> list[str]:
    """Writes `openlineage.json` and `run.prom`; a failure does not fail the run.

    Returns:
      A note for each file that could not be written.
    """
    files = {
        layout.run(summary.run_id).lineage_events: lineage_text,
        layout.run_metrics: run_metrics,
    }
    notes = []
    for path, make in files.items():
        try:
            write_atomically(path, make(summary))
        except Exception as error:
            logger.exception("%s could not be written", path)
            notes.append(f"{path} could not be written ({error})")
    return notes
