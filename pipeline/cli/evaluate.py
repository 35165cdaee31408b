"""`local_runner.py evaluate`: restores a checkpoint, and shows what it comes to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer
from rich.table import Table

from pipeline.cli.options import check_has_label, quiet_console
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata.store import check_store
from trainer_module.errors import InternalError, ScopelineError, counted, enumerate_names

OF_TRAINING = ("features", "model", "optimize", "preprocessing", "train", "tune")
"""Sections that a model has been made by, and that change nothing of it any more."""


def say_what_does_not_count(overrides: Iterable[str], is_pushed: bool) -> None:
    """Says which values of `--set` change nothing: a model is evaluated as it was trained.

    Args:
      overrides: `key=value` each.
      is_pushed: whether a pushed version is evaluated, by the config's metrics and slices; else a
          checkpoint, by what its training measured.
    """
    sections = (*OF_TRAINING,) if is_pushed else (*OF_TRAINING, "data", "evaluate", "task")
    keys = [key for key, _, _ in (override.partition("=") for override in overrides)]
    idle = [f"--set {key}" for key in keys if key.split(".")[0] in sections]
    if idle:
        verb = "changes" if len(idle) == 1 else "change"
        what = "the pushed version" if is_pushed else "the checkpoint"
        typer.echo(
            f"note: {enumerate_names(idle, 'and')} {verb} nothing here: {what} is evaluated with "
            "the settings that it was trained with",
            err=True,
        )


def show_evaluation(config: PipelineConfig, output: Path, which: str, verbose: bool) -> None:
    """Shows the loss and the metrics of a checkpoint on the eval split.

    Args:
      config: a checked config.
      output: the output folder.
      which: `latest`, or the number of an epoch.
      verbose: whether what libraries print is shown as well.

    Raises:
      ConfigError: there is no such checkpoint.
      TrainingError: the model is not the one that was saved.
      InternalError: the model's own code fails.
    """
    check_has_label(config)
    layout = Layout.of(config.name, config.push, output)
    check_store(config.metadata, layout)
    with quiet_console(verbose) as console:
        from pipeline.runs.results.last_execution import find_checkpoint, find_last_training

        training = find_last_training(config, layout)
        path = find_checkpoint(training, which)
        from trainer_module.checkpoint_evaluation import evaluate_checkpoint

        try:
            found = evaluate_checkpoint(training, path)
        except ScopelineError:
            raise
        except Exception as error:  # A model of the user's own raises what it likes.
            raise InternalError(
                f"{path} could not be evaluated: {type(error).__name__}: {error}; "
                "--verbose shows more."
            ) from error
        console.print(
            f"[bold]{config.name}[/bold], {Path(path).name} after epoch {found.epoch}, on "
            f"{counted(found.examples, 'example')} of the eval split"
        )
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="bold")
        table.add_column("metric")
        table.add_column("value", justify="right")
        for name, value in found.metrics.items():
            table.add_row(name, f"{value:.4f}")
        console.print(table)
