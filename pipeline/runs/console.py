"""The console of a run: a line per component, a progress bar, the metrics and the outcome."""

from __future__ import annotations

import logging
import math
import re
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from components.disk import show_size
from pipeline.records.summary import RunSummary, State, Status
from pipeline.runs.pace import Pace
from trainer_module.errors import counted
from trainer_module.runtime import EPOCH
from trainer_module.tuning.space import as_sections

QUIET_SECONDS = 20
"""The minimum time between two progress lines if the output is not a terminal. The end of an epoch
is always shown.
"""

BAR_WIDTH = 54
"""The width of a bar with the name of its component and the time."""

MAX_SLICES = 10
"""The maximum number of slices in the table, so that all output fits on a screen."""
COUNT = "example_count"
"""The name of TFMA's metric for the number of examples in a slice."""

_COLOURS = {
    State.RAN: "green",
    State.CACHED: "cyan",
    State.SKIPPED: "yellow",
    State.FAILED: "red",
    State.INTERRUPTED: "yellow",
}
MAX_TRIALS = 5
"""The maximum number of trials in the table; `summary.json` has all trials."""
NONE = "-"
"""The cell of a missing value."""


def show_path(path: Path | str) -> str:
    """Returns a path, relative to the working directory if the path is inside this directory."""
    is_inside = Path(path).is_relative_to(Path.cwd())
    return str(Path(path).relative_to(Path.cwd()) if is_inside else path)


class _Bar(Progress):
    """A progress bar, with details next to the bar or, on a narrow screen, below the bar."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yields the bar, then the lines below the bar."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if below := task.fields["below"]:
                text = Text(below, overflow="fold", no_wrap=False)
                yield Padding(text, (0, 0, 0, 4))

    def show(self, done: float | None, total: float | None, message: str, detail: str) -> None:
        """Draws the progress of a component.

        Args:
          done: the finished part of `total`, or None if unknown.
          total: the total work, or None if unknown.
          message: the progress in words.
          detail: more details, such as the losses of an epoch.
        """
        line = f"{message}  {detail}".rstrip()
        fits = len(line) <= self.console.width - BAR_WIDTH
        text, below = (line, "") if fits else (message, detail)
        task = self.task_ids[0]
        self.update(task, completed=done, total=total, detail=escape(text), below=below)


class RunConsole(logging.Handler):
    """The console of a run. As a logging handler, it shows the progress that components log."""

    def __init__(self, stream: IO[str], verbose: bool = False) -> None:
        """Draws on a stream; only a terminal gets colours and progress bars.

        Args:
          stream: the stream to draw on.
          verbose: whether log lines are shown; then no bars are drawn.
        """
        super().__init__()
        self._terminal = Console(file=stream, highlight=False, soft_wrap=True, emoji=False)
        self._draws_bars = self._terminal.is_interactive and not verbose
        self._bar: _Bar | None = None
        self._component = ""
        self._last_line = 0.0
        self._pace = Pace()
        self._notices: set[str] = set()

    def begin(self, title: str) -> None:
        """Prints the title of a run."""
        self._terminal.print(f"[bold]{escape(title)}[/bold]")

    def started(self, component: str) -> None:
        """Shows the start of a component."""
        self.stop()
        self._component, self._last_line = component, time.monotonic()
        self._pace = Pace()
        if not self._draws_bars:
            return
        self._bar = _Bar(
            SpinnerColumn(),
            TextColumn(f"{component:<16}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}"),
            console=self._terminal,
            transient=True,
        )
        self._bar.add_task(component, total=None, detail="", below="")
        self._bar.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Shows the progress or a notice of a component."""
        if getattr(record, "notice", False):
            self._notices.add(record.getMessage())
            self._terminal.print(f"  {self._component:<16}  {escape(record.getMessage())}")
            return
        if (trial := getattr(record, "trial", None)) is not None:
            # If there is a bar, Rich prints above the bar.
            self._terminal.print(f"  {self._component:<16}  {escape(describe_trial(trial))}")
            return
        done, total = getattr(record, "done", None), getattr(record, "total", None)
        message, detail = record.getMessage(), getattr(record, "detail", "")
        is_due = _ends_epoch(message) or time.monotonic() - self._last_line >= QUIET_SECONDS
        if time_left := self._pace.time_left(done, total, getattr(record, "left", "")):
            message = f"{message}, {time_left}"
        if self._bar is not None:
            self._bar.show(done, total, message, detail)
        elif is_due:
            self._last_line = time.monotonic()
            line = f"{message}  {detail}".rstrip()
            self._terminal.print(f"  {self._component:<16}  {escape(line)}")

    def finished(self, component: str, state: State, seconds: float, detail: str) -> None:
        """Shows the end of a component."""
        self.stop()
        label = f"[{_COLOURS[state]}]{state.value:<8}[/]"
        duration = f"{seconds:6.1f} s" if state.has_duration else " " * 8
        self._terminal.print(f"  {component:<16}  {label} {duration}  {escape(detail)}".rstrip())

    def write(self, line: str) -> None:
        """Prints a line; markup in the line has no effect."""
        self._terminal.print(line, markup=False)

    def stop(self) -> None:
        """Removes the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def conclude(self, summary: RunSummary, hints: list[str]) -> None:
        """Shows the metrics, the verdict, the pushed path, and hints for further details."""
        self.stop()
        for table in _tables(summary):
            self._terminal.print()
            self._terminal.print(table)
        self._terminal.print()
        for note in _notes(summary):
            if note not in self._notices:  # Notices are on the screen already.
                self._terminal.print(f"note: {escape(note)}")
        for line in describe_variants(summary.variants):
            self._terminal.print(line)
        for drift in summary.drift:
            self._terminal.print(f"drift: {escape(drift)}")
        self._terminal.print(_decision(summary))
        for hint in hints:
            self._terminal.print(escape(hint))


def _ends_epoch(message: str) -> bool:
    """Returns whether a progress message is about the end of an epoch.

    Only the message is compared: log records of Kubeflow steps have no other fields.
    """
    return re.search(rf"\b{EPOCH} \d+ of \d+$", message) is not None


def _notes(summary: RunSummary) -> list[str]:
    """Returns the notes of the run and of its training."""
    training = summary.training
    restarts = [f"{cause}, and training resumed" for cause in training.get("restarts", [])]
    return [*summary.notes, *training.get("notes", []), *restarts]


def _tables(summary: RunSummary) -> Iterator[Table]:
    """Yields the tables of a run in order."""
    if summary.tuning:
        yield trials_table(summary.tuning)
    if summary.metrics:
        yield _metrics_table(summary)
    if summary.variants.get("variants"):
        yield variants_table(summary.variants)
    if folds := summary.training.get("folds"):
        yield _folds_table(folds)
    if summary.slices:
        yield _slices_table(summary)


def figures_table(*columns: str, words: Sequence[str] = ()) -> Table:
    """Returns a table without lines, with right-aligned columns.

    Args:
      columns: the titles of the columns.
      words: the titles of the left-aligned columns.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in words else "right")
    return table


def _metrics_table(summary: RunSummary) -> Table:
    has_intervals = any(metric.interval for metric in summary.metrics.values())
    interval = ["interval"] if has_intervals else []
    columns = ("metric", "value", *interval, "in service", "needs")
    table = figures_table(*columns, words=("metric", "needs"))
    for name, metric in summary.metrics.items():
        colour = "" if metric.ok and not metric.needs else "green" if metric.ok else "red"
        needs = f"{metric.needs}: {'met' if metric.ok else 'not met'}" if metric.needs else ""
        table.add_row(
            name,
            _number(metric.value),
            *([_show_interval(metric.interval)] if has_intervals else []),
            "-" if metric.in_service is None else _number(metric.in_service),
            f"[{colour}]{escape(needs)}[/{colour}]" if colour else escape(needs),
        )
    return table


def _show_interval(interval: tuple[float, float] | None) -> str:
    return "-" if interval is None else " to ".join(map(_number, interval))


def _slices_table(summary: RunSummary) -> Table:
    """Returns the table of the largest slices; `summary.json` has all slices."""
    table = figures_table("slice", "examples", *summary.metrics, words=("slice",))
    largest = sorted(summary.slices.items(), key=lambda item: -item[1].get(COUNT, 0))
    for name, metrics in largest[:MAX_SLICES]:
        values = (_number(metrics.get(metric, math.nan)) for metric in summary.metrics)
        table.add_row(escape(name), f"{metrics.get(COUNT, 0):,.0f}", *values)
    if len(largest) > MAX_SLICES:
        table.add_row(f"and {len(largest) - MAX_SLICES} more in summary.json")
    return table


def _folds_table(folds: Mapping[str, Mapping[str, Any]]) -> Table:
    """Returns the cross-validation table: a row per fold, then mean and standard deviation."""
    table = figures_table("fold", *folds, words=("fold",))
    for fold, values in enumerate(zip(*(f["values"] for f in folds.values()), strict=True), 1):
        table.add_row(str(fold), *map(_number, values))
    table.add_row("mean", *(_number(fold["mean"]) for fold in folds.values()))
    table.add_row("std. dev.", *(_number(fold["deviation"]) for fold in folds.values()))
    return table


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) and abs(value) < 1e4 else f"{value:.4g}"


def _decision(summary: RunSummary) -> str:
    """Returns the outcome of a run in a coloured sentence."""
    reason = escape(summary.reason or "")
    if summary.status is Status.PUSHED:
        pushed = escape(show_path(str(summary.pushed)))
        if all(component.state is State.CACHED for component in summary.components):
            return f"[cyan]nothing has changed[/cyan]; an earlier run pushed {pushed}"
        return f"[green]blessed[/green]: {reason}\n[green]pushed[/green] to {pushed}"
    if summary.status is Status.VALIDATED:
        return "[green]validated[/green]: the data was read and checked"
    if summary.status is Status.TUNED:
        lines = escape(show_values(summary.tuning["values"]))
        return (
            "[green]tuned[/green]; runs train with these values; to set them in the "
            f"config:\n{lines}"
        )
    if summary.waiting is not None and summary.error is None:
        waits = f"as version {summary.waiting.version}: {escape(summary.waiting.reason)}"
        return f"[green]blessed[/green]: {reason}\n[yellow]not pushed[/yellow], {waits}"
    if summary.status is Status.NOT_BLESSED and summary.blessed:
        return f"[red]not pushed[/red]: {reason}"
    if summary.status is Status.NOT_BLESSED:
        return f"[red]not blessed[/red], not pushed: {reason}"
    if summary.error is not None:
        component = summary.error.component
        if summary.status is Status.INTERRUPTED:
            return f"[yellow]interrupted[/yellow] in {component or 'start-up'}"
        where = f"{component} failed: " if component else ""
        return f"[red]{escape(where)}[/red]{escape(summary.error.message)}"
    return f"[yellow]{summary.status.value}[/yellow]"


def describe_trial(trial: Mapping[str, Any]) -> str:
    """Returns a line for a trial that has ended.

    Args:
      trial: a `TrialRecord` as a mapping, with two more keys: `objective` is the name of the
        metric, and `is_best` is true for the best trial so far.
    """
    number, state = trial["number"], trial["state"]
    value = "" if trial["value"] is None else f"{trial['objective']} {trial['value']:.4g}"
    epochs = counted(trial["epochs"], "epoch") if trial["epochs"] else ""
    best = "best so far" if trial["is_best"] else ""
    details = ", ".join(filter(None, (value, epochs, best, trial["cause"])))
    return f"trial {number:<3} {state:<7}  {details}; {_describe_values(trial['values'])}"


def trials_table(tuning: Mapping[str, Any]) -> Table:
    """Returns the table of a search's best trials, with the values that they changed."""
    table = figures_table("trial", tuning["objective"], "epochs", "values", words=("values",))
    trials = tuning["trials"]
    for trial in trials[:MAX_TRIALS]:
        value, again = trial.get("value"), trial.get("again", {})
        result = trial["state"] if value is None else f"{value:.4f}"
        table.add_row(
            str(trial["number"]),
            f"{result} (repeated {statistics.fmean(again.values()):.4f})" if again else result,
            str(trial.get("epochs", "")),
            escape(_describe_values(trial.get("values", {}))),
        )
    if len(trials) > MAX_TRIALS:
        table.add_row("", "", "", f"and {len(trials) - MAX_TRIALS} more in summary.json")
    return table


def describe_choice(first: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    """Returns the reason why an automatic search chose another trial than the first in the list."""
    if parts := len(chosen.get("again", {})):
        evidence = f"in a second comparison on {parts} other parts of the data"
    else:
        evidence = f"on {counted(chosen['examples'], 'example')}"
    if chosen["number"]:
        return f"tune: trial {chosen['number']} is better than trial {first['number']} {evidence}"
    return (
        f"tune: trial {first['number']} is better {evidence}, but the difference may be chance: "
        "the config is not changed"
    )


def describe_members(chosen: Mapping[str, Any]) -> str:
    """Returns the result of an automatic search of an ensemble's members."""
    if chosen.get("is_joined"):
        return (
            f"tune: trial {chosen['number']} joins the best members of all trials; their loss on "
            f"{counted(chosen['examples'], 'unseen example')} is lower than the config's by more "
            "than its standard error"
        )
    return (
        "tune: no other settings of the members lower the loss on unseen examples by more than its "
        "standard error: the config is not changed"
    )


def show_values(values: Mapping[str, Any]) -> str:
    """Returns the YAML lines of the best values; a comment if the config is unchanged."""
    if not values:
        return "# no changes"
    lines: str = yaml.safe_dump(as_sections(values), sort_keys=False, default_flow_style=None)
    return lines.rstrip()


def _describe_values(values: Mapping[str, Any]) -> str:
    if not values:
        return "as in the config"
    return ", ".join(f"{path} {_short(value)}" for path, value in values.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def variants_table(variants: Mapping[str, Any]) -> Table:
    """Returns the table of variants for 80 columns; `summary.json` has further figures."""
    metric = variants["metric"]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("variant", no_wrap=True)
    for title in (metric, "drop", "size", "share", "gzipped", "1 row"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("ok", no_wrap=True)
    for variant in variants["variants"]:
        table.add_row(
            variant["name"],
            _show(variant["metrics"].get(metric), ".4f"),
            _show(variant["drop"], "+.2%" if variant.get("drop_is_share") else "+.4f"),
            _size(variant["bytes"]),
            _show(variant["size_ratio"], ".3f"),
            _size(variant["gzipped_bytes"]),
            _time(variant["measured"]),
            _verdict(variant),
        )
    return table


def describe_variants(variants: Mapping[str, Any]) -> list[str]:
    """Returns a line for each refusal and note of the variants."""
    lines = []
    for variant in variants.get("variants", []):
        name = escape(variant["name"])
        if not variant["accepted"]:
            lines.append(
                f"[yellow]refused[/yellow] {name}: {escape('; '.join(variant['reasons']))}"
            )
        elif reason := variant.get("unmeasured"):
            lines.append(
                f"note: {name}: {escape(reason)}, but accepted (optimize.accept.unmeasured)"
            )
        lines += [f"note: {name}: {escape(remark)}" for remark in variant["remarks"]]
    return lines


def _verdict(variant: Mapping[str, Any]) -> str:
    """Returns whether a variant is accepted, or was not measured."""
    if variant.get("unmeasured"):
        return "[yellow]unmeasured[/yellow]"
    return "[green]yes[/green]" if variant["accepted"] else "[red]no[/red]"


def _show(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def _size(value: int | None) -> str:
    return NONE if value is None else show_size(value)


def _time(measured: Mapping[str, Any]) -> str:
    milliseconds = measured.get("p50_ms_batch_1")
    return NONE if milliseconds is None else f"{milliseconds:.3g} ms"
