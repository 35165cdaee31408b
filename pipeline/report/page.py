"""Writes the report of a run: a page of HTML without scripts and without requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from components.disk import write_atomically
from components.evaluator.explanation.record import WorstExamples
from pipeline.records.run_folders import StoredRun, read_earlier
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
from trainer_module.errors import ConfigError

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


def make_report_of(run: StoredRun, summary: RunSummary) -> str:
    """Returns the report of a stored run as HTML, with its worst examples and earlier runs."""
    examples = summary.details.read_worst_examples() if summary.details else None
    return make_report(summary, examples, read_earlier(run))


def write_report(run: StoredRun, summary: RunSummary) -> None:
    """Writes the report of a run atomically; raises OSError if the file cannot be written."""
    write_atomically(run.files.report, make_report_of(run, summary))


def rewrite_report(run: StoredRun) -> None:
    """Writes the report of a run again, from its summary.

    Raises:
      DataError: the summary cannot be read.
      ConfigError: the report cannot be written.
    """
    summary = run.read()
    try:
        write_report(run, summary)
    except OSError as error:
        path = run.files.report
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None


def read_report(run: StoredRun) -> str:
    """Returns the stored report of a run, or makes it; raises DataError without a summary."""
    path = run.files.report
    # A link could lead to a file that belongs to no run.
    if not path.is_symlink():
        with suppress(OSError, UnicodeDecodeError):
            return path.read_text()
    return make_report_of(run, run.read())
