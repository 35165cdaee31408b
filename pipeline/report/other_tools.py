"""Writes what a run tells other tools: OpenLineage events, and metrics for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from pipeline.layout import Layout
from pipeline.records.summary import RunSummary
from pipeline.report.lineage_events import write_lineage_events
from pipeline.report.run_metrics import write_run_metrics

logger = logging.getLogger(__name__)


def write_for_other_tools(summary: RunSummary, layout: Layout) -> list[str]:
    """Writes `openlineage.json` and `run.prom`; a failure does not fail the run.

    Args:
      summary: the summary of a run that has ended, with its details.
      layout: the layout of the pipeline.

    Returns:
      A note for each file that could not be written.
    """
    files: dict[Path, Callable[[RunSummary, Path], None]] = {
        layout.run(summary.run_id).lineage_events: write_lineage_events,
        layout.run_metrics: write_run_metrics,
    }
    notes = []
    for path, write in files.items():
        try:
            write(summary, path)
        except Exception as error:
            logger.exception("%s could not be written", path)
            notes.append(f"{path} could not be written ({error})")
    return notes
