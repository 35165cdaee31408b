"""`local_runner.py evaluate --input`: a pushed version measured on labelled rows of files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from rich.table import Table

from components.example_gen.columns.encoded import Cell, ColumnKind, label_lengths
from pipeline.cli.options import check_has_label, quiet_console
from pipeline.cli.serving.predict import ChosenModel
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import DataError, counted
from trainer_module.scratch import ScratchFolder


def show_metrics_of_rows(
    config: PipelineConfig, asked: ChosenModel, pattern: str, verbose: bool
) -> None:
    """Shows the config's metrics of a version, of all rows and of its slices.

    They are Evaluator's: the same signatures, the same metrics, by TFMA.

    Args:
      config: a checked config, for the metrics and slices.
      asked: the version, and how files are read.
      pattern: the path, folder or glob of the rows.
      verbose: whether what libraries print is shown as well.

    Raises:
      ScopelineError: the rows cannot be read, or have no label.
    """
    from components.serving.batch.reading import find_files

    check_has_label(config)
    files, data_format = find_files(pattern, asked.usual_format)
    with quiet_console(verbose) as console, ScratchFolder() as folder:
        examples = Path(folder) / "examples.gz"
        _write_examples(config, asked, files, data_format, examples)
        metrics = _measure(config, asked, examples, Path(folder) / "evaluation")
        total = metrics.pop("")
        rows = counted(round(total.pop("example_count")), "row")
        who = f"version {asked.folder.name}"
        who += f", variant {asked.variant}" if asked.variant else ""
        console.print(f"[bold]{config.name}[/bold], {who}, on {rows}")
        console.print(_table(total, metrics))


def _write_examples(
    config: PipelineConfig, asked: ChosenModel, files: tuple[str, ...], data_format: str, to: Path
) -> None:
    """The rows as tf.Examples in a TFRecord."""
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    from components.serving.batch.reading import Input, read_blocks
    from components.serving.requests import kind_of_column
    from trainer_module.export.interface import read_interface

    interface, encoder = read_interface(asked.folder), RecordBatchToExamplesEncoder()
    label, dtype = interface.label, interface.label_dtype
    also = {name: ColumnKind.UNKNOWN for keys in config.evaluate.slices for name in keys}
    also |= {interface.weight: ColumnKind.FLOAT} if interface.weight else {}
    also |= {label: kind_of_column(dtype, dtype == "int64")}
    also = {name: k for name, k in also.items() if interface.column(name) is None}
    given = Input(files, data_format, asked.csv, asked.pictures, asked.max_pixels, also=also)
    with tf.io.TFRecordWriter(str(to), "GZIP") as writer:
        for block in read_blocks(given, interface):
            if block.rows is None:
                made = block.examples or []
            else:
                _check_labels(block.rows.column(label), label, block.first)
                made = encoder.encode(block.rows)
            for example in made:
                writer.write(example)


def _check_labels(labels: pa.Array, label: str, first: Cell) -> None:
    lengths = label_lengths(labels)
    if not lengths.all():
        raise DataError(
            f"Row {first.row + int((lengths == 0).argmax())} of {first.file} has no label"
            f" {label!r}: `evaluate` needs one in each row; `predict` needs none."
        )


def _measure(
    config: PipelineConfig, asked: ChosenModel, examples: Path, to: Path
) -> dict[str, dict[str, float]]:
    """Metrics by slice; the slice of all rows has an empty name."""
    import tensorflow_model_analysis as tfma

    from components.evaluator.slices import CANDIDATE, metrics_by_slice
    from pipeline.graph.evaluation import make_measuring_config

    eval_config, model = make_measuring_config(config.criteria), str(asked.folder)
    if asked.variant is None:
        shared = tfma.default_eval_shared_model(model, eval_config=eval_config)
    else:
        from components.optimizer.evaluating import config_of, shared_models
        from components.pusher.variants import find_variant

        eval_config = config_of(eval_config, [asked.variant])
        variants = {asked.variant: find_variant(asked.folder, asked.variant)}
        shared = shared_models(model, variants)
    tfma.run_model_analysis(
        eval_shared_model=shared,
        eval_config=eval_config,
        data_location=str(examples),
        file_format="tfrecords",
        output_path=str(to),
    )
    return {name: models[CANDIDATE] for name, models in metrics_by_slice(str(to)).items()}


def _table(total: dict[str, float], slices: dict[str, dict[str, float]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="bold")
    table.add_column("rows")
    for name in total:
        table.add_column(name, justify="right")
    for title, found in {"all": total, **slices}.items():
        table.add_row(title, *(f"{found.get(name, float('nan')):.4f}" for name in total))
    return table
