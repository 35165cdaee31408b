"""The training of a forest, as `run_fn` sees it: an epoch is one more tree for each output."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.data.dealing import Parts, count_units, deal_out, spare_rare
from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.losses import make_loss
from trainer_module.families.supervised.trees.columns import columns_of, split_columns
from trainer_module.families.supervised.trees.growing import TreeExamples, grow
from trainer_module.families.supervised.trees.model import build_model
from trainer_module.problem import Problem
from trainer_module.progress import report_progress
from trainer_module.settings import TrainerSettings

PARTS, MEMBERS = 10, 5
"""Each member of a forest is stopped by another tenth of the train split, in an order of time by
the latest one; there are so many at most, as each takes its time, in training and in service."""

ENOUGH = 20_000
"""Examples of which one tenth tells when to stop. Of fewer the forest is the mean of more members:
it is better than any of them, most of all for a small table."""

SHOWN = 5
"""Columns whose importance is worth a line of the summary."""


class ForestJob:
    """Trees to be grown, and the model that comes of them."""

    exported = None
    start_step = 0
    base_model = None
    is_asynchronous = False

    def __init__(
        self,
        settings: TrainerSettings,
        strategy: tf.distribute.Strategy,
        problem: Problem,
        train: Split,
        evaluation: Split,
        log_directory: str,
        prefix: str = "",
    ) -> None:
        """Grows nothing yet.

        Args:
          settings: of the model and its training.
          strategy: of one device, in whose scope the model is built.
          problem: what is to be learnt.
          train: all of it comes up in each step.
          evaluation: for `measured` alone.
          log_directory: for TensorBoard.
          prefix: comes before what is said of the progress.

        Raises:
          TrainingError: the train split does not fit into memory.
        """
        tensors = train.content.tensors
        if tensors is None:
            raise TrainingError(
                f"model 'trees' needs the train split in memory, of which its {train.examples:,} "
                "examples would take too much; give this machine more, take fewer rows or columns, "
                "or train a network, such as mlp."
            )
        self._tensors = tensors
        self.train = replace(train, batch_size=train.examples, rounds=1)
        self.evaluation = evaluation
        self._settings, self._strategy, self._problem = settings, strategy, problem
        self._log_directory, self._prefix = log_directory, prefix
        self._seconds = 0.0

    def run(self) -> None:
        """Grows the trees."""
        begun = time.monotonic()
        examples = self._examples()
        parts, members = self._deal()

        def report(done: int, detail: str) -> None:
            report_progress(done, members, f"{self._prefix}forest", detail)

        self._grown = grow(examples, self._problem, self._settings, parts, members, report)
        self._members = members
        self._seconds = time.monotonic() - begun
        self._write_curves()
        with self._strategy.scope():
            self.result = build_model(self._problem, self._grown.forest)

    def _examples(self) -> TreeExamples:
        problem, tensors, columns = self._problem, self._tensors, columns_of(self._problem)
        label = tensors[problem.label]
        column = tensors[problem.weight] if problem.weight else None
        weight = self.train.weighting.weigh(label, column)
        return TreeExamples(
            columns,
            split_columns(tensors, columns),
            label.numpy().ravel(),
            None if weight is None else weight.numpy(),
        )

    def _deal(self) -> tuple[Parts, int]:
        """Which member each example is held out from, and how many members to grow."""
        content = self.train.content
        count, units = content.examples, count_units(content)
        if self._settings.train.early_stopping in (None, False) or count < PARTS or units == 1:
            return Parts(np.full(count, -1)), 1
        parts = min(PARTS, units)
        dealt = deal_out(content, parts, self._settings.train.seed)
        members = min(MEMBERS, parts, max(1, ENOUGH // count))
        return spare_rare(dealt, content), members

    def _write_curves(self) -> None:
        """Where Keras's callback would: by tree instead of epoch."""
        for folder, name in (("train", "loss"), ("validation", "val_loss")):
            writer = tf.summary.create_file_writer(os.path.join(self._log_directory, folder))
            with writer.as_default():
                for step, value in enumerate(self.history.get(name, [])):
                    tf.summary.scalar("epoch_loss", value, step)

    @property
    def history(self) -> dict[str, list[float]]:
        """The losses by tree; `val_loss` is that of what was held out of the train split."""
        return self._grown.history

    @property
    def best_epoch(self) -> int:
        """Trees that the longest member keeps for each output."""
        return self._grown.kept

    @property
    def step_seconds(self) -> float:
        """Of a tree for each output."""
        return self._seconds / (len(self.history["loss"]) * self._members)

    @property
    def measured(self) -> dict[str, float]:
        """What the forest comes to on the evaluation split, by metric."""
        self.result.compile(
            loss=make_loss(self._problem, None), metrics=self._problem.make_metrics()
        )
        found = self.result.evaluate(
            self.evaluation.distribute(self._strategy),
            steps=self.evaluation.steps,
            verbose=0,
            return_dict=True,
        )
        return {name: float(value) for name, value in found.items()}

    @property
    def extras(self) -> dict[str, Any]:
        """What a record says of a forest, and of no network."""
        return {"trees": len(self._grown.forest.roots), "importances": self._grown.importances}

    @property
    def notes(self) -> list[str]:
        """How long it grew, and what it looks at."""
        ranked = list(self._grown.importances.items())[:SHOWN]
        shown = ", ".join(f"{name} {share:.0%}" for name, share in ranked)
        looks = f"most important: {shown}" if shown else "no column tells anything of the label"
        return [self._length(), f"trees: {looks}"]

    def _length(self) -> str:
        grown, most = self._grown, self._settings.model.trees
        if not grown.has_stopped:
            return f"trees: {most}, all that there may be; more could be better"
        each = f"{self._members} forests, each" if self._members > 1 else "a forest"
        return (
            f"trees: {each} stopped by a tenth of the train split, after at most {grown.kept} of "
            f"{most}"
        )
