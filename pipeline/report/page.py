"""Writes the report of a run: a page of HTML without scripts and without requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from components.disk import write_atomically
from components.evaluator.explanation.record import WorstExamples
from pipeline.records.summary import RunSummary
from pipeline.report.blocks import Cell, Section
from pipeline.report.private_slices import without_private_slices
from pipeline.report.rendering import render
from pipeline.report.sections.data import make_data
from pipeline.report.sections.evaluation import make_evaluation
from pipeline.report.sections.lineage import make_lineage, make_steps
from pipeline.report.sections.slices import make_slices
from pipeline.report.sections.training import make_training
from pipeline.report.sections.tuning import make_tuning
from pipeline.report.sections.usage import make_usage
from pipeline.report.sections.variants import make_certificate, make_variants
from pipeline.report.sections.verdict import STATUS, make_verdict
from pipeline.report.source import ReportSource
from pipeline.report.text import duration, shorten

REPORT_FILE = "report.html"
"""The file of the report in the folder of a run."""

_SECTIONS: Sequence[Callable[[ReportSource], Section | None]] = (
    make_verdict,
    make_data,
    make_training,
    make_evaluation,
    make_slices,
    make_usage,
    make_tuning,
    make_variants,
    make_certificate,
    make_steps,
    make_lineage,
)


def make_report(
    summary: RunSummary,
    worst_examples: WorstExamples | None = None,
    history: Sequence[RunSummary] = (),
) -> str:
    """Returns the report of a run as HTML.

    Args:
      summary: the summary of the run; the report of a summary without details is shorter.
      worst_examples: the worst examples, or None if their file does not exist.
      history: the summaries of earlier runs of the pipeline, the oldest first.
    """
    private = ReportSource(summary).private
    source = ReportSource(without_private_slices(summary, private), worst_examples, tuple(history))
    sections = [section for make in _SECTIONS if (section := make(source)) is not None]
    text, kind = STATUS[summary.status]
    return render(
        "report.html.j2",
        title=f"{shorten(summary.pipeline, 80)}: {text.lower()}",
        heading=shorten(summary.pipeline, 80),
        status=Cell(text, kind),
        subtitle=_subtitle(summary),
        sections=sections,
        footer=f"Made by Scopeline from summary.json of run {summary.run_id}.",
    )


def _subtitle(summary: RunSummary) -> str:
    started = summary.started.replace("T", " ").replace("+00:00", " UTC")
    return f"Run {summary.run_id} · started {started} · {duration(summary.seconds)}"


def write_report(
    summary: RunSummary,
    path: Path,
    worst_examples: WorstExamples | None = None,
    history: Sequence[RunSummary] = (),
) -> None:
    """Writes the report of a run atomically.

    Args:
      summary: the summary of the run.
      path: the file to write, usually REPORT_FILE in the folder of the run.
      worst_examples: the worst examples, or None if their file does not exist.
      history: the summaries of earlier runs of the pipeline, the oldest first.

    Raises:
      DiskFullError: the disk is full.
      OSError: the file cannot be written.
    """
    write_atomically(path, make_report(summary, worst_examples, history))
