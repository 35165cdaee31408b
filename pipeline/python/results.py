"""The results of runs and plans in Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNUSABLE
from trainer_module.errors import ScopelineError

if TYPE_CHECKING:
    from pipeline.layout import RunLayout
    from pipeline.records.summary import RunSummary
    from pipeline.runs.run import RunEnd


class Plan(str):
    """The text of `plan`: a line per component and per column, with reasons."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Returns the text itself, which a notebook shows."""
        return str(self)


@dataclass(frozen=True)
class RunResult:
    """The result of a run that has ended: what it decided, measured and pushed."""

    folder: Path
    """The folder of the run, with `summary.json`, `report.html` and `run.log`."""

    @cached_property
    def summary(self) -> RunSummary:
        """The content of `summary.json`; its fields are documented in docs/report.md."""
        from pipeline.records.run_folders import StoredRun

        return StoredRun(self.folder.parent.parent.name, self._files).read()

    @property
    def _files(self) -> RunLayout:
        # The import is here, because `import scopeline` is fast.
        from pipeline.layout import RunLayout

        return RunLayout(self.folder)

    @property
    def verdict(self) -> str:
        """The outcome, such as `pushed`, `not_blessed`, `held` or `waits`."""
        return self.summary.status.value

    @property
    def pushed(self) -> bool:
        """Whether the run pushed a model."""
        return self.verdict == "pushed"

    @property
    def reason(self) -> str:
        """The reason for the verdict, or an empty string."""
        return self.summary.reason or ""

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics on the eval split by name; an undefined metric is NaN."""
        return {name: float(metric.value) for name, metric in self.summary.metrics.items()}

    @property
    def report(self) -> Path:
        """The path of the report for a browser."""
        return self._files.report

    @property
    def model(self) -> Path | str | None:
        """The folder of the pushed version, its address in an object store, or None."""
        # The import is here, because `import scopeline` is fast.
        from components.example_gen.paths import is_remote

        pushed = self.summary.pushed
        # A path would have one slash after the scheme.
        return pushed if pushed is None or is_remote(pushed) else Path(pushed)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        return f"<run {self.folder.name}: {self.verdict}, {metrics or 'no metrics'}>"

    def _repr_html_(self) -> str:
        """Returns the verdict and the table of metrics, which a notebook shows."""
        lines = [
            f"<tr><th>{escape(name)}</th><td>{value:.4g}</td>"
            f"<td>{escape(self.summary.metrics[name].needs)}</td></tr>"
            for name, value in self.metrics.items()
        ]
        head = f"<p><b>{escape(self.verdict.replace('_', ' '))}</b>: {escape(self.reason)}</p>"
        return f"{head}<table>{''.join(lines)}</table>" if lines else head


class RunFailedError(ScopelineError):
    """A run of which a component failed; the message is that of the command."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result
        """The result of the run, with its summary, its report and its log."""


def result_of(end: RunEnd) -> RunResult:
    """Returns the result of a run that has ended.

    Raises:
      RunFailedError: a component failed, or the data is unusable.
      KeyboardInterrupt: a signal ended the run.
    """
    result = RunResult(end.folder)
    if end.exit_code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if end.exit_code in (EXIT_FAILED, EXIT_UNUSABLE):
        error = result.summary.error
        where = f"{error.component} failed: " if error and error.component else ""
        message = error.message if error else f"the run ended with exit code {end.exit_code}"
        raise RunFailedError(f"{where}{message}", result)
    return result
