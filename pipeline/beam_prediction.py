"""Batch prediction on Beam, for input files that are too large for one machine.

The workers and the command share the output folder, which has a state file for each shard.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.utils.shared import Shared
from filelock import FileLock

from components.disk import write_atomically
from components.pusher.versions import SAVED_MODEL
from components.serving.batch.job import PredictionResult
from components.serving.batch.reading import Input
from components.serving.batch.writing import exclusive_output
from components.serving.model import Model, import_tensorflow, load_model
from components.serving.settings import OnUnreadable
from pipeline.runs.imports import shared_module_path
from trainer_module.errors import (
    ConfigError,
    DataError,
    InternalError,
    ScopelineError,
    counted,
    shorten,
)

_PICTURES_PER_SHARD = 4096
"""The number of pictures in a shard; other files have many rows, and are one shard each."""
_STATE = ".predict"
_IDENTITY = "job.json"


@dataclass(frozen=True)
class Shard:
    """The input files for which one worker writes predictions, in their order."""

    number: int
    count: int
    """The number of all shards."""
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the file with the predictions of the shard."""
        return f"part-{self.number:05}-of-{self.count:05}.parquet"

    def stamps(self) -> list[list[int]]:
        """Returns the size and the modification time of each file, to detect changed files."""
        statuses = [Path(file).stat() for file in self.files]
        return [[status.st_size, status.st_mtime_ns] for status in statuses]


@dataclass(frozen=True)
class ShardResult:
    """The result of a shard: the number of predicted rows, or an error in its files."""

    rows: int
    error: str = ""
    """The error message, or an empty string if the predictions were written."""
    stamps: list[list[int]] = field(default_factory=list)
    """The sizes and modification times of the files before their prediction."""
    unreadable: dict[str, int] = field(default_factory=dict)
    """The number of values that the model could not read, by column."""


def make_shards(inputs: Input) -> list[Shard]:
    """Returns the shards: one file each, or 4,096 pictures each.

    The paths are absolute, as workers run in other folders.

    Raises:
      ConfigError: there is only one shard, which workers cannot share.
    """
    size = _PICTURES_PER_SHARD if inputs.format == "images" else 1
    files = tuple(map(os.path.abspath, inputs.files))
    parts = [files[start : start + size] for start in range(0, len(files), size)]
    if len(parts) == 1:
        names = f"{len(parts[0])} pictures" if len(parts[0]) > 1 else parts[0][0]
        raise ConfigError(
            f"--runner distributes the input files, but --input names only {names}: leave "
            "--runner out, or split the rows into several files."
        )
    return [Shard(number, len(parts), files) for number, files in enumerate(parts)]


class OutputFolder:
    """The output folder, with a file of predictions and a state file for each shard.

    The state files are deleted at the end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / _STATE

    def begin(self, identity: Sequence[object]) -> None:
        """Creates the folder, or resumes the predictions of an earlier, interrupted command.

        Results with errors are deleted, so that their shards are predicted again.

        Args:
          identity: the model, the input and the options; equal for commands that may resume each
            other's predictions.

        Raises:
          ConfigError: the folder contains files of another command.
        """
        text = json.dumps(identity)
        if self._state.is_dir() and self._identity() == text:
            for path in self._state.glob("part-*.json"):
                if json.loads(path.read_text())["error"]:
                    path.unlink()
            return
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise ConfigError(
                f"--output {self.folder} contains files that this command did not write: give a "
                "new folder. (An interrupted command can be resumed only with the same input, "
                "model and options.)"
            )
        self._state.mkdir(parents=True)
        write_atomically(self._state / _IDENTITY, text)

    def check(self) -> None:
        """Raises ConfigError if `--output` is a file, or its parent folder does not exist."""
        if self.folder.suffix or self.folder.is_file():
            raise ConfigError(
                f"--output {self.folder} is a file name, but --runner writes a Parquet file for "
                "each input file: give a folder."
            )
        if not self.folder.absolute().parent.is_dir():
            raise ConfigError(
                f"--output {self.folder}: there is no folder {self.folder.absolute().parent}."
            )

    def _identity(self) -> str:
        try:
            return (self._state / _IDENTITY).read_text()
        except OSError:
            return ""

    def predictions_path(self, shard: Shard) -> Path:
        """Returns the path of the predictions for a shard."""
        return self.folder / shard.name

    def lock(self, shard: Shard) -> FileLock:
        """Returns the lock of a shard; some runners assign one shard to two workers."""
        return FileLock(self._state / f"{shard.name}.lock")

    def result(self, shard: Shard) -> ShardResult | None:
        """Returns the result of a shard, or None if its current files have no result."""
        try:
            stored = ShardResult(**json.loads(self._state_file(shard).read_text()))
        except OSError:
            return None
        is_complete = bool(stored.error) or self.predictions_path(shard).is_file()
        return stored if is_complete and stored.stamps == shard.stamps() else None

    def record(self, shard: Shard, result: ShardResult) -> None:
        """Stores the result of a shard."""
        write_atomically(self._state_file(shard), json.dumps(asdict(result)))

    def _state_file(self, shard: Shard) -> Path:
        return self._state / f"{shard.name}.json"

    def finish(self) -> None:
        """Deletes the state files once all predictions are written."""
        shutil.rmtree(self._state)


@dataclass(frozen=True)
class Work:
    """The work that shards have in common; the paths are valid on all workers."""

    version: Path
    variant: str | None
    inputs: Input
    """The input files and their settings, such as the format."""
    output: OutputFolder
    batch_rows: int
    on_unreadable: OnUnreadable = OnUnreadable.MISSING
    shown: int = 0
    """The number of columns in the explanation of a prediction, or 0 for no explanations."""
    top_k: int | None = None
    """The number of classes in a prediction, or None for all classes."""


class PredictShards(beam.PTransform):
    """A transform from shards to the names of their output files and the numbers of rows.

    If a file cannot be used, the error is recorded in the output folder and other shards continue.
    The error is not raised, as Beam would retry the shard without success.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def expand(self, shards: beam.PCollection[Shard]) -> beam.PCollection[tuple[str, int]]:
        """Distributes the shards over the workers."""
        return shards | beam.Reshuffle() | beam.ParDo(_PredictShard(self._work))


class _PredictShard(beam.DoFn):
    def __init__(self, work: Work) -> None:
        self._work = work
        self._shared = Shared()

    def process(self, shard: Shard) -> Iterator[tuple[str, int]]:
        """Writes the predictions of a shard, unless they exist; yields their file and row count."""
        output = self._work.output
        with output.lock(shard):
            result = output.result(shard)
            if result is None:
                result = self._predict(shard)
                output.record(shard, result)
        if not result.error:
            yield shard.name, result.rows

    def _predict(self, shard: Shard) -> ShardResult:
        import_tensorflow()
        from components.serving.batch.explaining import Explainer
        from components.serving.batch.job import PredictionJob, predict

        work, stamps = self._work, shard.stamps()
        try:
            # All threads of a process share one model.
            model: Model = self._shared.acquire(lambda: load_model(work.version, work.variant))
            inputs = replace(work.inputs, files=shard.files)
            path = work.output.predictions_path(shard)
            explainer = Explainer.of(model, inputs, work.shown) if work.shown else None
            job = PredictionJob(
                model, inputs, path, work.batch_rows, work.on_unreadable, explainer, work.top_k
            )
            done = predict(job, lambda rows: None)
            return ShardResult(done.rows, stamps=stamps, unreadable=done.unreadable)
        except InternalError:  # Beam's retry may succeed, for example after a full disk.
            raise
        except ScopelineError as error:
            return ShardResult(0, str(error), stamps)


_MAX_REASON_LENGTH = 500


def predict_on_beam(work: Work, args: Sequence[str]) -> PredictionResult:
    """Writes a file of predictions for each shard.

    Args:
      work: the model, the input and the output.
      args: options of the Beam pipeline.

    Raises:
      ConfigError: there is only one shard, or the output folder contains files of other commands.
      DataError: some files cannot be used; the predictions for other files are kept.
      TryLaterError: another command is writing to the output folder.
      InternalError: Beam failed, or its workers cannot access the output folder.
    """
    shards = make_shards(work.inputs)
    work.output.check()
    with exclusive_output(work.output.folder):
        return _predict_shards(work, shards, args)


def _predict_shards(work: Work, shards: Sequence[Shard], args: Sequence[str]) -> PredictionResult:
    work.output.begin(_identity(work))
    kept = sum(result.rows for shard in shards if (result := work.output.result(shard)))
    with shared_module_path():
        _run(work, shards, args)
    done = _sum(work.output, shards, kept)
    work.output.finish()
    return done


def _identity(work: Work) -> list[object]:
    """Returns the model, the input and the options, for `OutputFolder.begin`."""
    graph = work.version / SAVED_MODEL
    status, inputs = graph.stat(), work.inputs
    model = [str(graph.resolve()), status.st_size, status.st_mtime_ns, work.variant]
    options: list[object] = [work.shown] if work.shown else []
    options += [] if work.top_k is None else [{"top_k": work.top_k}]
    return [model, inputs.format, inputs.copied, inputs.files, work.on_unreadable, *options]


def _run(work: Work, shards: Sequence[Shard], args: Sequence[str]) -> None:
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(list(args)))
        _ = pipeline | beam.Create(shards, reshuffle=False) | PredictShards(work)
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # Runners raise many types of errors.
        done = sum(work.output.result(shard) is not None for shard in shards)
        files = counted(done, "file")
        kept = (
            f" The predictions for {files} are kept; run the same command to resume."
            if done
            else ""
        )
        raise InternalError(
            f"Beam failed: {_reason(error)} (--verbose shows more).{kept}"
        ) from error
    if state != PipelineState.DONE:
        raise InternalError(
            f"The Beam job ended in the state {state}; the log of the runner has the reason."
        )


def _reason(error: Exception) -> str:
    """Returns the last line of an error, without the worker's traceback before this line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shorten(lines[-1] if lines else repr(error), _MAX_REASON_LENGTH)


def _sum(output: OutputFolder, shards: Sequence[Shard], kept: int) -> PredictionResult:
    """Returns the totals of all shards.

    Raises:
      DataError: files of some shards cannot be used.
      InternalError: a shard has no result.
    """
    results = [output.result(shard) for shard in shards]
    if errors := [result.error for result in results if result is not None and result.error]:
        done = sum(result is not None and not result.error for result in results)
        raise DataError(
            f"{len(errors)} of {counted(len(shards), 'file')} cannot be used. The first error: "
            f"{errors[0]} The predictions for {counted(done, 'file')} are kept in {output.folder}; "
            "correct the files, and run the same command to resume."
        )
    pairs = zip(shards, results, strict=True)
    if missing := [shard.name for shard, result in pairs if result is None]:
        raise InternalError(
            f"The Beam job ended, but {output.folder} lacks {missing[0]}: Beam workers need the "
            "input, the model and this folder at the same paths as this command."
        )
    unreadable = Counter[str]()
    for result in results:
        unreadable.update(result.unreadable if result is not None else {})
    return PredictionResult(
        sum(result.rows for result in results if result is not None), kept, dict(unreadable)
    )
