"""Implements `scopeline evaluate`: measures a checkpoint or a pushed version."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.table import Table

from components.example_gen.columns.encoded import Cell, ColumnKind, label_lengths
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ConfigOption,
    ModelOption,
    OutputOption,
    SetOption,
    VariantOption,
    VerboseOption,
    VersionOption,
    load_here,
    quiet_console,
)
from pipeline.cli.predict import ChosenModel, chosen_model
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from pipeline.records.metadata_store import check_store
from pipeline.runs.console import figures_table
from trainer_module.errors import (
    ConfigError,
    DataError,
    InternalError,
    ScopelineError,
    counted,
    enumerate_names,
)
from trainer_module.scratch import ScratchFolder

TRAINING_SECTIONS = ("features", "model", "optimize", "preprocessing", "train", "tune")
"""The config sections that affect only training, not a finished model."""


def evaluate(
    config: ConfigOption = DEFAULT_CONFIG,
    overrides: SetOption = [],  # noqa: B006 - typer reads the default, nothing changes it
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    checkpoint: Annotated[
        str,
        typer.Option(metavar="EPOCH", help="Evaluate the checkpoint of this epoch, or `latest`."),
    ] = "latest",
    pattern: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILES",
            help="Evaluate on these labelled rows: a file, folder or glob.",
        ),
    ] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    variant: VariantOption = None,
) -> None:
    """Evaluate a pushed version or a checkpoint.

    With --input, evaluates a pushed version on labelled rows, with the metrics and slices of the
    config. Without --input, evaluates a checkpoint of the last training on the eval split.

    Example: scopeline evaluate --config my.yaml --input labelled.csv

    Exit codes: 0 done, 2 the version, the checkpoint or the rows are unusable.
    """
    loaded = load_here(config, overrides)
    _warn_of_unused_overrides(overrides, is_pushed=pattern is not None)
    if not loaded.family.has_label:
        kind = loaded.target.kind
        raise ConfigError(
            f"`evaluate` needs labels, and `task: {kind}` has no label; the metrics of the model "
            "are in the summary of the run."
        )
    if pattern is None:
        _show_evaluation(loaded, output, checkpoint, verbose)
    else:
        chosen = chosen_model(loaded, output, model, version, variant)
        _show_metrics_of_rows(loaded, chosen, pattern, verbose)


def _warn_of_unused_overrides(overrides: Iterable[str], is_pushed: bool) -> None:
    """Warns about `--set` overrides that have no effect on the evaluation of a trained model."""
    # A checkpoint is evaluated with the metrics of its training, not with the config's.
    sections = TRAINING_SECTIONS if is_pushed else (*TRAINING_SECTIONS, "data", "evaluate", "task")
    keys = [key for key, _, _ in (override.partition("=") for override in overrides)]
    unused = [f"--set {key}" for key in keys if key.split(".")[0] in sections]
    if unused:
        verb = "changes" if len(unused) == 1 else "change"
        model = "the pushed version" if is_pushed else "the checkpoint"
        typer.echo(
            f"note: {enumerate_names(unused, 'and')} {verb} nothing: {model} is evaluated with the "
            "settings of its training",
            err=True,
        )


def _show_evaluation(config: PipelineConfig, output: Path, checkpoint: str, verbose: bool) -> None:
    """Shows the loss and the metrics of a checkpoint on the eval split.

    Raises:
      ConfigError: there is no such checkpoint.
      TrainingError: the checkpoint belongs to another model.
      InternalError: the model's own code fails.
    """
    layout = Layout.of(config.name, config.push, output)
    check_store(config.metadata, layout)
    with quiet_console(verbose) as console:
        from pipeline.runs.last_execution import find_checkpoint, find_last_training

        training = find_last_training(config, layout)
        path = find_checkpoint(training, checkpoint)
        from trainer_module.checkpoint_evaluation import evaluate_checkpoint

        try:
            evaluation = evaluate_checkpoint(training, path)
        except ScopelineError:
            raise
        except Exception as error:  # The user's own model may raise any exception.
            raise InternalError(
                f"{path} could not be evaluated: {type(error).__name__}: {error}; "
                "--verbose shows more."
            ) from error
        console.print(
            f"[bold]{config.name}[/bold], {Path(path).name} after epoch {evaluation.epoch}, on "
            f"{counted(evaluation.examples, 'example')} of the eval split"
        )
        table = figures_table("metric", "value", words=("metric",))
        for name, value in evaluation.metrics.items():
            table.add_row(name, f"{value:.4f}")
        console.print(table)


def _show_metrics_of_rows(
    config: PipelineConfig, chosen: ChosenModel, pattern: str, verbose: bool
) -> None:
    """Shows a version's metrics on labelled rows, for all rows and for each slice.

    TFMA computes the metrics as in the Evaluator, with the same signatures.

    Raises:
      ScopelineError: the rows cannot be read, or have no label.
    """
    from components.serving.batch.reading import find_files

    files, data_format = find_files(pattern, chosen.default_format)
    with quiet_console(verbose) as console, ScratchFolder() as folder:
        examples = Path(folder) / "examples.gz"
        _write_examples(config, chosen, files, data_format, examples)
        metrics = _measure(config, chosen, examples, Path(folder) / "evaluation")
        total = metrics.pop("")
        rows = counted(round(total.pop("example_count")), "row")
        model = f"version {chosen.folder.name}"
        model += f", variant {chosen.variant}" if chosen.variant else ""
        console.print(f"[bold]{config.name}[/bold], {model}, on {rows}")
        console.print(_table(total, metrics))


def _write_examples(
    config: PipelineConfig,
    chosen: ChosenModel,
    files: tuple[str, ...],
    data_format: str,
    path: Path,
) -> None:
    """Writes the rows as tf.Examples into a TFRecord file."""
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    from components.serving.batch.reading import read_blocks
    from components.serving.requests import kind_of_column
    from trainer_module.export.interface import read_interface

    interface, encoder = read_interface(chosen.folder), RecordBatchToExamplesEncoder()
    label, dtype = interface.label, interface.label_dtype
    extra = {name: ColumnKind.UNKNOWN for keys in config.evaluate.slices for name in keys}
    extra |= {interface.weight: ColumnKind.FLOAT} if interface.weight else {}
    extra |= {label: kind_of_column(dtype, dtype == "int64")}
    extra = {name: k for name, k in extra.items() if interface.column(name) is None}
    source = chosen.read(files, data_format, extra_columns=extra)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for block in read_blocks(source, interface):
            if block.rows is None:
                examples = block.examples or []
            else:
                _check_labels(block.rows.column(label), label, block.first)
                examples = encoder.encode(block.rows)
            for example in examples:
                writer.write(example)


def _check_labels(labels: pa.Array, label: str, first: Cell) -> None:
    lengths = label_lengths(labels)
    if not lengths.all():
        raise DataError(
            f"Row {first.row + int((lengths == 0).argmax())} of {first.file} has no label"
            f" {label!r}: `evaluate` needs a label in each row, `predict` needs no labels."
        )


def _measure(
    config: PipelineConfig, chosen: ChosenModel, examples: Path, folder: Path
) -> dict[str, dict[str, float]]:
    """Returns the metrics by slice; the name of the slice of all rows is empty."""
    import tensorflow_model_analysis as tfma

    from components.evaluator.slices import CANDIDATE, metrics_by_slice
    from pipeline.graph.evaluation import make_measuring_config

    eval_config, model = make_measuring_config(config.criteria), str(chosen.folder)
    if chosen.variant is None:
        shared = tfma.default_eval_shared_model(model, eval_config=eval_config)
    else:
        from components.optimizer.evaluating import make_config, shared_models
        from components.pusher.variants import find_variant

        eval_config = make_config(eval_config, [chosen.variant])
        variants = {chosen.variant: find_variant(chosen.folder, chosen.variant)}
        shared = shared_models(model, variants)
    tfma.run_model_analysis(
        eval_shared_model=shared,
        eval_config=eval_config,
        data_location=str(examples),
        file_format="tfrecords",
        output_path=str(folder),
    )
    return {name: models[CANDIDATE] for name, models in metrics_by_slice(str(folder)).items()}


def _table(total: dict[str, float], slices: dict[str, dict[str, float]]) -> Table:
    table = figures_table("rows", *total, words=("rows",))
    for title, metrics in {"all": total, **slices}.items():
        table.add_row(title, *(f"{metrics.get(name, float('nan')):.4f}" for name in total))
    return table
