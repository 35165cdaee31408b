"""Implements `scopeline predict`: writes a pushed version's predictions for the rows of files."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from components.example_gen.formats import CsvSettings, ExampleGenSettings
from components.example_gen.paths import is_remote
from components.pusher.variants import find_variant
from components.serving.settings import SHOWN_COLUMNS, OnUnreadable
from components.serving.versions import check_model, find_version
from pipeline.beam_options import beam_args
from pipeline.cli.given_rows import Row, parse_rows, print_predictions
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    ModelOption,
    OnUnreadableOption,
    SetOption,
    VariantOption,
    VerboseOption,
    VersionOption,
    flag,
    load_here,
    quiet_console,
)
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import locate_data
from pipeline.data.ingestion import reading_settings
from pipeline.layout import Layout
from trainer_module.errors import ConfigError, ScopelineError, TrainingError, counted
from trainer_module.export.interface import read_interface
from trainer_module.families import SampleRequest, family_named
from trainer_module.features.pixels import DATA_PIXELS
from trainer_module.scratch import ScratchFolder
from trainer_module.sections import load_own
from trainer_module.settings.tasks import TASKS, task_class

MAX_SAMPLES = 1_000_000
"""The maximum number of samples that one command draws."""

if TYPE_CHECKING:
    from components.serving.batch.job import PredictionResult
    from components.serving.batch.past_labels import PastSeries
    from components.serving.batch.reading import Input


@dataclass(frozen=True)
class ChosenModel:
    """The model that a command uses, and the settings with which files are read."""

    folder: Path
    """The folder of the version."""
    default_format: str | None = None
    """The format of files whose name does not determine the format."""
    variant: str | None = None
    """A variant of the version, or None for the SavedModel itself."""
    csv: CsvSettings = field(default_factory=CsvSettings)
    pictures: dict[str, str] = field(default_factory=dict)
    max_pixels: int = DATA_PIXELS
    """The maximum number of pixels of a picture."""
    on_unreadable: OnUnreadable = OnUnreadable.MISSING
    series: PastSeries | None = None
    """The data in which past labels are, or None if the config has no `data.lags`."""

    def read(self, files: tuple[str, ...], data_format: str, **options: Any) -> Input:
        """Returns files as they are read for the model; `options` are further fields."""
        from components.serving.batch.reading import Input

        return Input(
            files,
            data_format,
            self.csv,
            self.pictures,
            self.max_pixels,
            series=self.series,
            **options,
        )


@dataclass(frozen=True)
class PredictOptions:
    """The options of predictions that do not depend on the source of the rows."""

    copied: tuple[str, ...] = ()
    """The columns that are copied to the answers."""
    batch_rows: int = 4096
    shown: int = 0
    """The number of columns in the explanation of a prediction, or 0 for no explanations."""
    top_k: int | None = None
    """The number of classes in a prediction, or None for all classes."""
    verbose: bool = False


def predict(
    answers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write this .csv, .jsonl or .parquet file, or folder.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="FILES", help="Predict these rows: a file, folder or glob."
        ),
    ] = None,
    row: Annotated[
        list[str],
        typer.Option(metavar="JSON", help='Predict this row, such as {"fare": 12}.'),
    ] = [],  # noqa: B006
    count: Annotated[
        int | None,
        typer.Option(
            "--n",
            metavar="N",
            min=1,
            max=MAX_SAMPLES,
            help="Draw N samples from a generative model.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="With --n: draw with this seed.", show_default="0"),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--class", metavar="NAME", help="With --n: draw samples of this class."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read this YAML file.",
            show_default="configs/digits.yaml",
        ),
    ] = None,
    overrides: SetOption = [],  # noqa: B006
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Use this output folder.", show_default="output"),
    ] = None,
    output_folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
    model: ModelOption = None,
    version: VersionOption = None,
    variant: VariantOption = None,
    columns: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Copy these columns to the answers, such as an id."),
    ] = "",
    batch_rows: Annotated[
        int,
        typer.Option("--batch-size", metavar="ROWS", min=1, help="Set the rows per batch."),
    ] = PredictOptions.batch_rows,
    top_k: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Give only the K most probable classes."),
    ] = None,
    explain: Annotated[
        bool,
        flag(
            "--explain",
            "Add the columns with the largest shares in each answer.",
        ),
    ] = False,
    explain_columns: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="With --explain: list N columns.", show_default="5"),
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Predict on Beam, such as direct, flink or config.",
        ),
    ] = None,
    on_unreadable: OnUnreadableOption = None,
    max_pixels: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Refuse larger images.",
            show_default="data.max_pixels",
        ),
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Predict rows, or draw samples.

    Reads CSV, JSON lines, Parquet, TFRecord and image files as in training. The answers have the
    order of the rows. To resume an interrupted command, run it again.

    Example: scopeline predict --config my.yaml --input rows.csv --answers out.csv

    Exit codes: 0 done, 1 Beam failed, 2 the rows are unusable, 75 the output is in use.
    """
    target, folder = _output_paths(answers, output, output_folder, is_optional=bool(row))
    if config is None and model is None:
        typer.echo(f"note: neither --config nor --model is given: using {DEFAULT_CONFIG}", err=True)
    path = config or (None if model else DEFAULT_CONFIG)
    loaded = load_here(path, overrides) if path else None
    chosen = chosen_model(loaded, folder, model, version, variant)
    chosen = replace(chosen, max_pixels=max_pixels) if max_pixels else chosen
    chosen = replace(chosen, on_unreadable=on_unreadable) if on_unreadable else chosen
    if count is not None:
        if target is None or any((pattern, row, runner, variant, columns, explain, top_k)):
            raise ConfigError(
                "--n draws new samples: leave out --input, --row, --columns, --runner, --variant,"
                " --explain and --top-k."
            )
        write_samples(chosen, SampleRequest(count, seed or 0, label), target, verbose)
        return
    if label is not None or seed is not None:
        raise ConfigError("--class and --seed apply to --n only: leave them out, or give --n N.")
    if explain_columns is not None and not explain:
        raise ConfigError("--explain-columns applies to --explain only: add --explain.")
    options = PredictOptions(
        tuple(name.strip() for name in columns.split(",") if name.strip()),
        batch_rows,
        (explain_columns or SHOWN_COLUMNS) if explain else 0,
        top_k,
        verbose,
    )
    if row:
        if pattern is not None or runner is not None:
            raise ConfigError("--row gives the rows to predict: leave out --input and --runner.")
        named = [*loaded.features] if loaded else []
        predict_rows(chosen, row, named, target, options)
        return
    if pattern is None or target is None:
        raise ConfigError(
            "--input is missing: give the rows to predict, --row with a row, or --n with a number"
            " of samples."
        )
    args = None if runner is None else beam_args(runner, loaded.beam.args if loaded else ())
    write_predictions(chosen, pattern, target, options, args)


def _output_paths(
    answers: Path | None, output: Path | None, output_folder: Path | None, is_optional: bool
) -> tuple[Path | None, Path]:
    """Returns the file for the answers, and the output folder of the pipeline.

    Without `--answers`, `--output` is the file for the answers, as in earlier releases, unless the
    file is optional.

    Raises:
      ConfigError: no file is given, although it is not optional.
    """
    if answers is not None or is_optional:
        return answers, output or output_folder or OUTPUT
    if output is None:
        raise ConfigError("--answers is missing: give a file, such as --answers answers.csv.")
    typer.echo(
        f"note: --output is now the output folder; for the answers, write --answers {output}",
        err=True,
    )
    return output, output_folder or OUTPUT


def chosen_model(
    config: PipelineConfig | None,
    output: Path,
    model: Path | None,
    version: int | None,
    variant: str | None = None,
) -> ChosenModel:
    """Returns the model that the options of a command select.

    Args:
      config: the checked config, or None if the command has no config.
      model: the folder of a version, or None for a version that the config's pipeline pushed.
      version: the number of a version, or None for the newest version that is not withdrawn.
      variant: a variant of the version.

    Raises:
      ConfigError: there is no such version or variant.
      DamagedFileError: the version's files differ from the certified files.
    """
    if model is not None and version is not None:
        raise ConfigError("give either --version or --model, not both; --version needs a config.")
    if config is None:
        if model is None:
            raise ConfigError(
                "--config is missing: give a config, or --model DIR with a pushed version."
            )
        return _checked(ChosenModel(check_model(model), None, variant))
    layout = Layout.of(config.name, config.push, output)
    reading = reading_settings(config, layout)
    folder = check_model(model) if model else find_version(layout.serving, version)
    return _checked(
        ChosenModel(
            folder,
            config.data.format,
            variant,
            reading.csv,
            reading.pictures,
            reading.max_pixels,
            config.requests.on_unreadable,
            past_series(config, layout, reading),
        )
    )


def past_series(
    config: PipelineConfig, layout: Layout, reading: ExampleGenSettings
) -> PastSeries | None:
    """Returns the data from which `data.lags` are computed. None if the config has no lags, or if
    the data is not on this machine.

    Raises:
      DataError: there is no file.
    """
    if config.data.lags is None or layout.is_elsewhere or is_remote(config.data.path):
        return None
    from components.serving.batch.past_labels import PastSeries
    from components.serving.batch.reading import find_files

    location = locate_data(config.data, layout)
    patterns = [posixpath.join(location.base, glob) for glob in location.patterns.values()]
    files = (file for pattern in patterns for file in find_files(pattern, config.data.format)[0])
    return PastSeries(reading, tuple(files))


def _checked(chosen: ChosenModel) -> ChosenModel:
    """Returns the model unchanged; raises ConfigError if the version lacks its variant."""
    if chosen.variant is not None:
        find_variant(chosen.folder, chosen.variant)
    return chosen


def write_predictions(
    chosen: ChosenModel,
    pattern: str,
    output: Path,
    options: PredictOptions,
    args: Sequence[str] | None = None,
) -> None:
    """Writes the predictions for all rows of files into a file or, on Beam, into a folder with a
    Parquet file for each input file.

    Args:
      pattern: the path, folder or glob of the rows.
      args: options of the Beam pipeline, or None to predict without Beam.

    Raises:
      ScopelineError: a file cannot be read or written, or Beam fails.
    """
    from components.serving.batch.reading import check_not_input, find_files
    from components.serving.batch.writing import check_output

    if args is None:
        check_output(output)
    files, data_format = find_files(pattern, chosen.default_format)
    source = chosen.read(files, data_format, copied=options.copied)
    check_not_input(output, pattern, source)
    with quiet_console(options.verbose) as console:
        if args is None:
            result, seconds = _predict(chosen, source, output, options, console)
        else:
            result, seconds = _predict_on_beam(chosen, source, output, options, args)
        console.print(_summary(chosen, result, seconds, output))


def _predict_on_beam(
    chosen: ChosenModel, source: Input, output: Path, options: PredictOptions, args: Sequence[str]
) -> tuple[PredictionResult, float]:
    from pipeline.beam_prediction import OutputFolder, Work, predict_on_beam

    work = Work(
        chosen.folder.absolute(),
        chosen.variant,
        source,
        OutputFolder(output.absolute()),
        options.batch_rows,
        chosen.on_unreadable,
        options.shown,
        options.top_k,
    )
    began = time.monotonic()
    return predict_on_beam(work, args), time.monotonic() - began


def _predict(
    chosen: ChosenModel, source: Input, output: Path, options: PredictOptions, console: Console
) -> tuple[PredictionResult, float]:
    """Writes predictions, and returns the result and the seconds that the predictions took."""
    from components.serving.model import import_tensorflow, load_model

    with console.status("loading the model"):
        import_tensorflow()
        from components.serving.batch.explaining import Explainer
        from components.serving.batch.job import PredictionJob, predict

        model = load_model(chosen.folder, chosen.variant)
    began = time.monotonic()
    with _progress(console) as bar:
        task = bar.add_task("predict", total=None)
        explainer = Explainer.of(model, source, options.shown) if options.shown else None
        job = PredictionJob(
            model,
            source,
            output,
            options.batch_rows,
            chosen.on_unreadable,
            explainer,
            options.top_k,
        )
        result = predict(job, lambda rows: bar.update(task, completed=rows))
    return result, time.monotonic() - began


def predict_rows(
    chosen: ChosenModel,
    texts: Sequence[str],
    named: Sequence[str],
    answers: Path | None,
    options: PredictOptions,
) -> None:
    """Predicts rows of the command line, and prints or writes the predictions.

    The rows are read from a temporary file of JSON lines, as `--input` reads files. Paths of
    pictures are relative to the feature's `folder`, or else to the working directory.

    Args:
      texts: a JSON object per row.
      named: columns that the config names. A row may have them even if the model ignores them.
      answers: the file for the predictions, or None to print them.

    Raises:
      ScopelineError: the model cannot take a row, or a file cannot be written.
    """
    copied = options.copied
    interface = read_interface(chosen.folder)
    rows = parse_rows(texts, interface, {*named, *copied, *series_keys(chosen)})
    options = replace(options, batch_rows=len(rows))
    with ScratchFolder() as folder, quiet_console(options.verbose) as console:
        output = answers or Path(folder) / "answers.jsonl"
        with rows_as_input(chosen, rows, Path(folder), "--row", copied) as source:
            result, seconds = _predict(chosen, source, output, options, console)
        if answers is None:
            with output.open(encoding="utf-8") as lines:
                print_predictions(console, list(map(json.loads, lines)), copied, options.top_k)
            console.print(_notes(result).lstrip("\n"), end="")
        else:
            console.print(_summary(chosen, result, seconds, answers))


def series_keys(chosen: ChosenModel) -> tuple[str, ...]:
    """Returns the columns of the data by which past labels are found."""
    series = chosen.series.columns if chosen.series else None
    return (series.order_by, *series.lags.key) if series else ()


@contextmanager
def rows_as_input(
    chosen: ChosenModel,
    rows: Sequence[Row],
    folder: Path,
    source: str,
    copied: tuple[str, ...] = (),
) -> Iterator[Input]:
    """Writes rows to a file, and yields the file as it is read for the model.

    The file has JSON lines or, if a value is the bytes of a picture, the format Parquet. Paths of
    pictures are relative to the feature's `folder`, or else to the working directory.

    Args:
      source: the name of the rows, which replaces the path of the file in errors.
      copied: the columns that are copied to the answers.

    Raises:
      ScopelineError: a ScopelineError that the block raised.
    """
    pictures = [c.name for c in read_interface(chosen.folder).columns if c.picture == "path"]
    folders = {name: chosen.pictures.get(name) or str(Path.cwd()) for name in pictures}
    has_bytes = any(isinstance(value, bytes) for row in rows for value in row.values())
    data_format = "parquet" if has_bytes else "jsonl"
    path = folder / f"rows.{data_format}"
    if has_bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    try:
        yield replace(chosen, pictures=folders).read((str(path),), data_format, copied=copied)
    except ScopelineError as error:
        raise type(error)(str(error).replace(str(path), source)) from error


def write_samples(chosen: ChosenModel, request: SampleRequest, output: Path, verbose: bool) -> None:
    """Writes samples of a generative model into a folder, which appears when it is complete.

    Args:
      output: the folder, which must be empty or not exist yet.

    Raises:
      ScopelineError: the model is not generative, or the folder cannot be written.
    """
    kind = read_interface(chosen.folder).task
    sample = family_named(task_class(kind).family).sample if kind in TASKS else ""
    if not sample:
        raise ConfigError(
            f"--n needs a generative model, and the model in {chosen.folder} predicts rows"
            f"{f' (`task: {kind}`)' if kind else ''}: give --input with rows."
        )
    with quiet_console(verbose) as console, new_folder(output) as folder:
        from components.serving.model import import_tensorflow

        import_tensorflow()
        line = call_sample_function(sample, chosen.folder, request, folder)
        console.print(f"{line}, version {chosen.folder.name}: {output}")


def call_sample_function(path: str, model: Path, request: SampleRequest, folder: Path) -> str:
    """Calls the `sample` function of a family.

    Args:
      path: the import path of the function.
      model: the folder of a version.
      folder: the folder into which the function writes the samples.

    Returns:
      The function's summary of the samples.

    Raises:
      ScopelineError: the function raised a ScopelineError.
      TrainingError: the function raised any other error.
      OSError: a file of the folder cannot be written.
    """
    try:
        return str(load_own("the family's sample", path)(model, request, folder))
    except ScopelineError:
        raise
    except Exception as error:
        # An error at another file, such as the model's, is reported as an error of the function.
        failed_file = str(getattr(error, "filename", None) or folder)
        if isinstance(error, OSError) and Path(failed_file).is_relative_to(folder):
            raise
        raise TrainingError(
            f"the family's sample {path!r} failed: {type(error).__name__}: {error}."
        ) from error


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yields a scratch folder that is renamed to `output` on success, and deleted on failure.

    Raises:
      ConfigError: `output` exists and is not an empty folder, has no name, or cannot be written.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(
            f"--answers {output} exists already; with --n, give a new or empty folder."
        )
    if output.name in ("", ".."):
        raise ConfigError(
            f"--answers {output}: this folder has no name; give another folder, such as samples."
        )
    part = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        part.mkdir(parents=True)
        yield part
        part.replace(output)
    except OSError as error:
        raise ConfigError(f"--answers {output}: the folder cannot be written: {error}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _summary(chosen: ChosenModel, result: PredictionResult, seconds: float, output: Path) -> str:
    rate = f"{(result.rows - result.kept) / max(seconds, 1e-9):,.0f} rows a second"
    earlier = f", {result.kept:,} of them by an earlier command" if result.kept else ""
    model = f"version {chosen.folder.name}"
    model += f", variant {chosen.variant}" if chosen.variant else ""
    text = f"{counted(result.rows, 'row')}{earlier}, {model}, {rate}: {output}"
    return text + _notes(result)


def _notes(result: PredictionResult) -> str:
    """Returns a line for each column with invalid values or without past labels."""
    unreadable = "".join(
        f"\n{name}: {count:,} invalid values count as missing"
        for name, count in sorted(result.unreadable.items())
    )
    missing = "".join(
        f"\n{name}: {counted(count, 'row')} without this past label, as no row of its time has a"
        " label"
        for name, count in result.missing.items()
    )
    return unreadable + missing


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.completed:,.0f} rows"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
