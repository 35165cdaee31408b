"""Batch predictions on Beam, for files that are too large for one machine.

The state of each shard is in files of the output folder, which the workers and the command share.
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

_PICTURES = 4096
"""The number of pictures in a shard, as each picture is a file of one row."""
_STATE = ".predict"
_IDENTITY = "job.json"


@dataclass(frozen=True)
class Shard:
    """The files that one worker predicts, in order."""

    number: int
    count: int
    """The number of all shards."""
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the file with the predictions."""
        return f"part-{self.number:05}-of-{self.count:05}.parquet"

    def stamps(self) -> list[list[int]]:
        """Returns the size and the modification time of each file, which show whether a file has
        changed.
        """
        found = [Path(file).stat() for file in self.files]
        return [[status.st_size, status.st_mtime_ns] for status in found]


@dataclass(frozen=True)
class ShardResult:
    """The result of a shard: the number of predicted rows, or an error in its files."""

    rows: int
    error: str = ""
    stamps: list[list[int]] = field(default_factory=list)
    """The size and the modification time of each file when the shard began."""
    unreadable: dict[str, int] = field(default_factory=dict)
    """The number of texts that the model could not read, by column."""


def make_shards(given: Input) -> list[Shard]:
    """Returns a shard for each file, or for some thousands of pictures.

    Paths are absolute, as workers run in other folders.

    Raises:
      ConfigError: there is only one shard, which several workers cannot share.
    """
    size = _PICTURES if given.format == "images" else 1
    files = tuple(map(os.path.abspath, given.files))
    parts = [files[start : start + size] for start in range(0, len(files), size)]
    if len(parts) == 1:
        inputs = f"the {len(parts[0])} pictures" if len(parts[0]) > 1 else parts[0][0]
        raise ConfigError(
            f"--runner distributes the input files, and --input names only {inputs}: leave "
            "--runner out, or split the rows into several files."
        )
    return [Shard(number, len(parts), files) for number, files in enumerate(parts)]


class OutputFolder:
    """The output folder: a file of predictions for each shard, and a state file for each until all
    are done.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / _STATE

    def begin(self, identity: Sequence[object]) -> None:
        """Creates the folder, or resumes what the same command has left in it.

        Args:
          identity: equal for commands with the same model, input and options.

        Raises:
          ConfigError: the folder contains other files.
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
                "new folder. (A stopped command resumes only with the same input and model.)"
            )
        self._state.mkdir(parents=True)
        write_atomically(self._state / _IDENTITY, text)

    def check(self) -> None:
        """Raises ConfigError if the output is a file, or its parent folder does not exist."""
        if self.folder.suffix or self.folder.is_file():
            raise ConfigError(
                f"--output {self.folder} is a file, but --runner writes a Parquet file for each "
                "input file: give a folder."
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

    def answers_of(self, shard: Shard) -> Path:
        """Returns the path of the predictions for a shard."""
        return self.folder / shard.name

    def lock(self, shard: Shard) -> FileLock:
        """Returns the lock of a shard, as some runners give one shard to two workers."""
        return FileLock(self._state / f"{shard.name}.lock")

    def outcome(self, shard: Shard) -> ShardResult | None:
        """Returns the result of a shard; None if there is none yet, or its files have changed
        since.
        """
        try:
            found = ShardResult(**json.loads(self._note(shard).read_text()))
        except OSError:
            return None
        is_there = bool(found.error) or self.answers_of(shard).is_file()
        return found if is_there and found.stamps == shard.stamps() else None

    def record(self, shard: Shard, outcome: ShardResult) -> None:
        """Stores the result of a shard."""
        write_atomically(self._note(shard), json.dumps(asdict(outcome)))

    def _note(self, shard: Shard) -> Path:
        return self._state / f"{shard.name}.json"

    def finish(self) -> None:
        """Deletes the state files once all predictions are written."""
        shutil.rmtree(self._state)


@dataclass(frozen=True)
class Work:
    """The job of each worker; its paths are valid on all of them."""

    version: Path
    variant: str | None
    given: Input
    """The input settings, such as the format, for the files of each shard."""
    output: OutputFolder
    batch_rows: int
    on_unreadable: OnUnreadable = OnUnreadable.MISSING


class AnswerShards(beam.PTransform):
    """A transform from shards to the names of their output files, with their numbers of rows.

    Files that cannot be used are recorded in the output folder, and the other shards continue: a
    retry by Beam would fail on them again.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def expand(self, shards: beam.PCollection[Shard]) -> beam.PCollection[tuple[str, int]]:
        """Distributes the shards over the workers."""
        return shards | beam.Reshuffle() | beam.ParDo(_AnswerShard(self._work))


class _AnswerShard(beam.DoFn):
    def __init__(self, work: Work) -> None:
        self._work = work
        self._shared = Shared()

    def process(self, shard: Shard) -> Iterator[tuple[str, int]]:
        """Writes the predictions for a shard, unless they exist."""
        output = self._work.output
        with output.lock(shard):
            outcome = output.outcome(shard)
            if outcome is None:
                outcome = self._answer(shard)
                output.record(shard, outcome)
        if not outcome.error:
            yield shard.name, outcome.rows

    def _answer(self, shard: Shard) -> ShardResult:
        import_tensorflow()
        from components.serving.batch.job import PredictionJob, predict

        work, stamps = self._work, shard.stamps()
        try:
            # One model per process, shared by all its threads.
            model: Model = self._shared.acquire(lambda: load_model(work.version, work.variant))
            given = replace(work.given, files=shard.files)
            answers = work.output.answers_of(shard)
            job = PredictionJob(model, given, answers, work.batch_rows, work.on_unreadable)
            done = predict(job, lambda rows: None)
            return ShardResult(done.rows, stamps=stamps, unreadable=done.unreadable)
        except InternalError:  # For example a full disk: a retry may succeed.
            raise
        except ScopelineError as error:
            return ShardResult(0, str(error), stamps)


_LONGEST_REASON = 500


def predict_on_beam(work: Work, args: Sequence[str]) -> PredictionResult:
    """Writes a file of predictions for each input file.

    Args:
      work: the model, the input and the output.
      args: options of the Beam pipeline.

    Raises:
      ConfigError: there is only one file, or the output folder contains other files.
      DataError: some files cannot be used; the predictions for the others are kept.
      TryLaterError: another command is writing to the output folder.
      InternalError: Beam failed, or its workers do not see the output folder.
    """
    shards = make_shards(work.given)
    work.output.check()
    with exclusive_output(work.output.folder):
        return _predict_shards(work, shards, args)


def _predict_shards(work: Work, shards: Sequence[Shard], args: Sequence[str]) -> PredictionResult:
    work.output.begin(_identity(work))
    kept = sum(found.rows for shard in shards if (found := work.output.outcome(shard)))
    with shared_module_path():
        _run(work, shards, args)
    done = _sum(work.output, shards, kept)
    work.output.finish()
    return done


def _identity(work: Work) -> list[object]:
    """Returns a value that is equal for commands that resume each other's output."""
    graph = work.version / SAVED_MODEL
    status, given = graph.stat(), work.given
    network = [str(graph.resolve()), status.st_size, status.st_mtime_ns, work.variant]
    return [network, given.format, given.copied, given.files, work.on_unreadable]


def _run(work: Work, shards: Sequence[Shard], args: Sequence[str]) -> None:
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(list(args)))
        _ = pipeline | beam.Create(shards, reshuffle=False) | AnswerShards(work)
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # Runners raise many types of errors.
        done = sum(work.output.outcome(shard) is not None for shard in shards)
        files = counted(done, "file")
        kept = f" The answers to {files} are kept: the same command resumes." if done else ""
        raise InternalError(
            f"Beam failed: {_reason(error)} (--verbose shows more).{kept}"
        ) from error
    if state != PipelineState.DONE:
        raise InternalError(f"The Beam job ended as {state}; the log of its runner has the reason.")


def _reason(error: Exception) -> str:
    """Returns the last line of an error with text; runners put the worker's traceback before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shorten(lines[-1] if lines else repr(error), _LONGEST_REASON)


def _sum(output: OutputFolder, shards: Sequence[Shard], kept: int) -> PredictionResult:
    """Returns the totals of all shards.

    Raises:
      DataError: files of some shards cannot be used.
      InternalError: a shard has no result.
    """
    outcomes = [output.outcome(shard) for shard in shards]
    if errors := [found.error for found in outcomes if found is not None and found.error]:
        done = sum(found is not None and not found.error for found in outcomes)
        raise DataError(
            f"{len(errors)} of {counted(len(shards), 'file')} cannot be used. The first: "
            f"{errors[0]} The answers to {counted(done, 'file')} are kept in {output.folder}: the "
            "same command resumes."
        )
    if missing := [s.name for s, found in zip(shards, outcomes, strict=True) if found is None]:
        raise InternalError(
            f"The Beam job ended, but {output.folder} lacks {missing[0]}: Beam workers need the "
            "input, the model and this folder under the same paths as this command."
        )
    unreadable = Counter[str]()
    for found in outcomes:
        unreadable.update(found.unreadable if found is not None else {})
    return PredictionResult(
        sum(found.rows for found in outcomes if found is not None), kept, dict(unreadable)
    )
