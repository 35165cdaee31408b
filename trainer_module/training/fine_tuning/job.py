"""A training in two phases, either of which may be interrupted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from trainer_module.data.input_pipeline import Split
from trainer_module.training.backup import Position
from trainer_module.training.fine_tuning.features import make_step, with_features
from trainer_module.training.fine_tuning.phases import Phases
from trainer_module.training.job import TrainingJob


@dataclass(frozen=True, kw_only=True)
class TransferJob(TrainingJob):
    """Trains what `phases` says first; then `model`, which is compiled only then."""

    phases: Phases
    begun: Position
    """Where this process began, or went on: the second phase has a start of its own."""

    @classmethod
    def of(cls, job: TrainingJob, phases: Phases) -> TransferJob:
        """The training of a job, in phases."""
        notes = [*phases.notes, *job.notes]
        return cls(**vars(job) | {"notes": notes}, phases=phases, begun=job.start)

    @property
    def start(self) -> Position:
        """Where to begin, or to go on."""
        return self.begun

    def run(self) -> None:
        """Trains, or goes on in the phase that was interrupted."""
        phases = self.phases
        if phases.is_one or self.begun.epoch < phases.until:
            last = min(phases.until, self.last_epoch)
            self.backup.is_followed = last < self.last_epoch
            self._phase(model=phases.trained, last_epoch=last, **self._splits(last)).run()
            if last == self.last_epoch or phases.trained.stop_training:
                return
            phases.thaw()
            self.backup.hand_over(self.model)
        self._phase().run()

    def _splits(self, last_epoch: int) -> dict[str, Split]:
        """What the first phase learns from; nothing is computed where no epoch is left."""
        pooled = self.phases.pooled
        if pooled is None or self.begun.epoch >= last_epoch:
            return {}
        step = make_step(pooled, self.strategy)
        found = {"train": self.train, "evaluation": self.evaluation}
        return {k: with_features(split, step, self.strategy) for k, split in found.items()}

    def _phase(self, **changes: Any) -> TrainingJob:
        kept = {field.name: getattr(self, field.name) for field in fields(TrainingJob)}
        return TrainingJob(**kept | changes)
