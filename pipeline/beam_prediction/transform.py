"""Predictions as a Beam transform: what `predict` does, for each shard on some worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import apache_beam as beam
from apache_beam.utils.shared import Shared

from components.serving.batch.reading import Input
from components.serving.model import Model, import_tensorflow, load_model
from components.serving.settings import OnUnreadable
from pipeline.beam_prediction.shards import OutputFolder, Shard, ShardResult
from trainer_module.errors import InternalError, ScopelineError


@dataclass(frozen=True)
class Work:
    """What each worker is told: paths are the same on all of them."""

    version: Path
    variant: str | None
    given: Input
    """How the files of a shard are written."""
    output: OutputFolder
    batch_rows: int
    on_unreadable: OnUnreadable = OnUnreadable.MISSING


class AnswerShards(beam.PTransform):
    """Shards in; the name of each shard's file and its number of rows out.

    Files that cannot be used are noted in the output folder, and the others are answered all the
    same: another try, as Beam makes them, would find nothing else.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def expand(self, shards: beam.PCollection[Shard]) -> beam.PCollection[tuple[str, int]]:
        """Spreads the shards over the workers."""
        return shards | beam.Reshuffle() | beam.ParDo(_AnswerShard(self._work))


class _AnswerShard(beam.DoFn):
    def __init__(self, work: Work) -> None:
        self._work = work
        self._shared = Shared()

    def process(self, shard: Shard) -> Iterator[tuple[str, int]]:
        """Writes the answers to a shard, unless they are there."""
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
            # One model a process, whatever number of threads asks it.
            model: Model = self._shared.acquire(lambda: load_model(work.version, work.variant))
            given = replace(work.given, files=shard.files)
            answers = work.output.answers_of(shard)
            job = PredictionJob(model, given, answers, work.batch_rows, work.on_unreadable)
            done = predict(job, lambda rows: None)
            return ShardResult(done.rows, stamps=stamps, unreadable=done.unreadable)
        except InternalError:  # Such as a full disk: later, or elsewhere, it may succeed.
            raise
        except ScopelineError as error:
            return ShardResult(0, str(error), stamps)
