"""Completes the summary of a run that has ended, and writes the report."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path

from components.disk import is_disk_full
from components.evaluator.explanation.record import WorstExamples
from pipeline.layout import RunLayout
from pipeline.records.details import StepCost
from pipeline.records.summary import RunSummary
from pipeline.run_context import RunContext
from pipeline.runs.console import show_path
from pipeline.runs.details import collect_details

logger = logging.getLogger(__name__)

WRITE_LATER = "`scopeline report` writes it"
_MAX_HISTORY = 30
"""The maximum number of earlier runs in a report."""


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

        history = _read_history(files)
        write_report(summary, files.report, _read_examples(summary), history)
    except Exception as error:
        logger.exception("The report could not be written")
        if is_disk_full(error):
            return f"report: not written (the disk is full); {WRITE_LATER}"
        return f"report: not written ({type(error).__name__}: {error})"[:300]
    return f"report: {show_path(files.report)}"


def _read_examples(summary: RunSummary) -> WorstExamples | None:
    """Returns the worst examples, or None if their file was deleted or is damaged."""
    if summary.details is None or not summary.details.worst_examples:
        return None
    try:
        return WorstExamples.model_validate_json(Path(summary.details.worst_examples).read_text())
    except (OSError, ValueError):
        logger.warning("The report lacks the worst examples", exc_info=True)
        return None


def _read_history(files: RunLayout) -> list[RunSummary]:
    """Returns the readable summaries of the newest earlier runs, the oldest first.

    The names of runs on Kubeflow have no order, but each run writes into its folder.
    """
    changed: dict[Path, float] = {}
    for folder in files.root.parent.iterdir():
        # A folder may be deleted at this moment, or be a link to nothing.
        with suppress(OSError):
            changed[folder] = folder.stat().st_mtime
    changed.pop(files.root, None)
    history: list[tuple[float, RunSummary]] = []
    for folder in sorted(changed, key=changed.__getitem__)[-_MAX_HISTORY:]:
        try:
            run = RunSummary.model_validate_json(RunLayout(folder).summary.read_text())
            history.append((datetime.fromisoformat(run.started).timestamp(), run))
        except (OSError, ValueError):
            logger.info("The summary in %s cannot be read", folder)
    return [run for _, run in sorted(history, key=itemgetter(0))]
