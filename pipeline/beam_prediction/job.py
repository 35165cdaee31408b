"""One prediction of many files by a runner of Beam's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from components.pusher.versions import SAVED_MODEL
from components.serving.batch.job import Done
from components.serving.batch.writing import only_writer
from pipeline.beam_prediction.shards import OutputFolder, Shard, make_shards
from pipeline.beam_prediction.transform import AnswerShards, Work
from pipeline.runs.imports import shared_module_path
from trainer_module.errors import DataError, InternalError, counted, shorten

_LONGEST_REASON = 500


def predict_on_beam(work: Work, args: Sequence[str]) -> Done:
    """Writes a file of answers for each file of rows.

    Args:
      work: what to predict.
      args: options of the Beam pipeline.

    Raises:
      ConfigError: there is one file alone, or the output folder holds something else.
      DataError: files cannot be used; the others are answered, and kept.
      TryLaterError: another command writes the output folder.
      InternalError: Beam failed, or its workers do not see the output folder.
    """
    shards = make_shards(work.given)
    work.output.check()
    with only_writer(work.output.folder):
        return _predict_shards(work, shards, args)


def _predict_shards(work: Work, shards: Sequence[Shard], args: Sequence[str]) -> Done:
    work.output.begin(_identity(work))
    kept = sum(found.rows for shard in shards if (found := work.output.outcome(shard)))
    with shared_module_path():
        _run(work, shards, args)
    done = _sum(work.output, shards, kept)
    work.output.finish()
    return done


def _identity(work: Work) -> list[object]:
    """Equal for a command that goes on with what another one leaves."""
    graph = work.version / SAVED_MODEL
    status, given = graph.stat(), work.given
    network = [str(graph.resolve()), status.st_size, status.st_mtime_ns, work.variant]
    return [network, given.format, given.kept, given.files, work.on_unreadable]


def _run(work: Work, shards: Sequence[Shard], args: Sequence[str]) -> None:
    try:
        pipeline = beam.Pipeline(options=PipelineOptions(list(args)))
        _ = pipeline | beam.Create(shards, reshuffle=False) | AnswerShards(work)
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # Runners raise all sorts, from options to lost workers.
        done = sum(work.output.outcome(shard) is not None for shard in shards)
        files = counted(done, "file")
        kept = f" What {files} came to is kept: the same command goes on." if done else ""
        raise InternalError(
            f"Beam failed: {_reason(error)} (--verbose shows more).{kept}"
        ) from error
    if state != PipelineState.DONE:
        raise InternalError(f"Beam ended the predictions as {state}; its runner's log says why.")


def _reason(error: Exception) -> str:
    """The last line that says something: runners put the traceback of a worker before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shorten(lines[-1] if lines else repr(error), _LONGEST_REASON)


def _sum(output: OutputFolder, shards: Sequence[Shard], kept: int) -> Done:
    """What came of all shards, of which each has to be answered."""
    outcomes = [output.outcome(shard) for shard in shards]
    if errors := [found.error for found in outcomes if found is not None and found.error]:
        done = sum(found is not None and not found.error for found in outcomes)
        raise DataError(
            f"{len(errors)} of {counted(len(shards), 'file')} cannot be used. The first:"
            f" {errors[0]} The answers to {counted(done, 'file')} are kept in"
            f" {output.folder}: the same command goes on."
        )
    if missing := [s.name for s, found in zip(shards, outcomes, strict=True) if found is None]:
        raise InternalError(
            f"Beam ended, and {output.folder} lacks {missing[0]}: its workers have to see the"
            " input, the model and this folder under the same paths as this command."
        )
    unreadable = Counter[str]()
    for found in outcomes:
        unreadable.update(found.unreadable if found is not None else {})
    return Done(sum(found.rows for found in outcomes if found is not None), kept, dict(unreadable))
