"""Makes the report of a run again from its summary."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from components.disk import write_atomically
from components.evaluator.explanation.record import WorstExamples
from pipeline.records.run_folders import StoredRun, read_earlier
from pipeline.records.summary import RunSummary
from pipeline.report.page import REPORT_FILE, make_report
from trainer_module.errors import ConfigError


def report_path(run: StoredRun) -> Path:
    """Returns the path of a run's report, which may not exist."""
    return run.files.root / REPORT_FILE


def rewrite_report(run: StoredRun) -> Path:
    """Writes the report of a run atomically, and returns its path.

    Raises:
      DataError: the summary cannot be read.
      ConfigError: the report cannot be written.
    """
    path = report_path(run)
    try:
        write_atomically(path, make_report_of(run))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
    return path


def read_report(run: StoredRun) -> str:
    """Returns the stored report of a run, or makes it; raises DataError without a summary."""
    path = report_path(run)
    try:
        # A link could lead to a file that belongs to no run.
        return make_report_of(run) if path.is_symlink() else path.read_text()
    except (OSError, UnicodeDecodeError):
        return make_report_of(run)


def make_report_of(run: StoredRun) -> str:
    """Returns the report of a run as HTML; raises DataError if the summary cannot be read."""
    summary = run.read()
    return make_report(summary, _worst_examples(summary), read_earlier(run))


def _worst_examples(summary: RunSummary) -> WorstExamples | None:
    """Returns the worst examples of the Evaluator's artifact, or None if they are gone."""
    if summary.details is None or not summary.details.worst_examples:
        return None
    try:
        path = Path(summary.details.worst_examples)
        return WorstExamples.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None  # Retention deletes the artifacts of old runs.
