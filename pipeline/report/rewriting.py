"""Makes the report of a run again from its summary."""

from __future__ import annotations

from pathlib import Path

from components.disk import write_atomically
from pipeline.records.run_folders import StoredRun, read_earlier
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
    examples = summary.details.read_worst_examples() if summary.details else None
    return make_report(summary, examples, read_earlier(run))
