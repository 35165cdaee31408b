"""The training of a policy: acting, learning, evaluating, and saving backups.

Training is online if it acts in environments, and offline if it reads logged transitions. An online
round consists of steps of all environments and then of optimizer steps; an offline round consists
of optimizer steps. An epoch consists of rounds, and ends with an evaluation of the policy and a
backup.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from zipfile import BadZipFile

import numpy as np
import tensorflow as tf

from trainer_module.errors import TrainingError
from trainer_module.families.control.environments import (
    Environments,
    EnvironmentSettings,
    SeedsOf,
    episode_seed,
    play,
)
from trainer_module.families.control.learner import Learner
from trainer_module.families.control.replay import Replay
from trainer_module.families.control.task import ControlTask
from trainer_module.runtime import AT_MOST, report_progress
from trainer_module.settings import EarlyStoppingSettings, TrainerSettings

CHECKPOINT_FILE = "control.npz"
"""The name of the backup's file in its folder."""
_NOTES = "notes"
"""The name of the array in the file that contains plain values as JSON."""
_DAMAGE_ERRORS = (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError)
"""TensorFlow's errors for damaged files; its other errors mean that storage cannot be reached."""


def save_checkpoint(
    directory: str, notes: Mapping[str, Any], arrays: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Replaces the backup of a training; if the process is killed, the previous backup remains.

    Args:
      directory: the folder of the backup, a path or URI.
      notes: plain values that can be written as JSON.
      arrays: the arrays by the name of the part of the training, and by their name.
    """
    by_path: dict[str, Any] = {
        f"{part}/{name}": array
        for part, part_arrays in arrays.items()
        for name, array in part_arrays.items()
    }
    tf.io.gfile.makedirs(directory)
    path = os.path.join(directory, CHECKPOINT_FILE)
    with tf.io.gfile.GFile(f"{path}.new", "wb") as file:
        # NumPy writes directly to the file, without a second copy of the replay buffer in memory.
        np.savez(_SequentialFile(file), **{_NOTES: np.array(json.dumps(notes)), **by_path})
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


class _SequentialFile(io.RawIOBase):
    """A file without seeking, as TensorFlow's remote files cannot seek while they are written."""

    def __init__(self, file: tf.io.gfile.GFile) -> None:
        super().__init__()
        self._file = file

    def write(self, data: Any) -> int:
        """Writes the data and returns its length."""
        self._file.write(bytes(data))
        return len(data)

    def tell(self) -> int:
        """Raises UnsupportedOperation; NumPy then does not seek."""
        raise io.UnsupportedOperation


def load_checkpoint(
    directory: str,
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]] | None:
    """Returns the notes and arrays of a folder's backup, or None if there is no backup.

    Raises:
      TrainingError: the backup is damaged.
    """
    path = os.path.join(directory, CHECKPOINT_FILE)
    if not tf.io.gfile.exists(path):
        return None
    arrays: dict[str, dict[str, np.ndarray]] = {}
    try:
        with (
            tf.io.gfile.GFile(path, "rb") as file,
            np.load(file, allow_pickle=False) as content,
        ):
            notes = json.loads(str(content[_NOTES]))
            for key in content.files:
                part, _, name = key.partition("/")
                if name:
                    arrays.setdefault(part, {})[name] = content[key]
    except (ValueError, KeyError, EOFError, BadZipFile, *_DAMAGE_ERRORS) as error:
        raise TrainingError(
            f"the backup {path} is damaged ({type(error).__name__}); delete the file to start"
            " training from the beginning."
        ) from error
    return notes, arrays


logger = logging.getLogger(__name__)

AT_ONCE = 16
"""The number of optimizer steps in one graph call."""
EPOCHS = 40
"""The maximum number of epochs."""
PATIENCE = 15
"""The default number of epochs without a better policy after which training stops."""
PATIENCE_IF_SOLVED = 4
"""The patience in an environment with a reward threshold, after the threshold is reached.

Training does not stop before the threshold is reached, as the values may grow for half of the
steps.
"""
_FIRST_EVALUATION, _SECOND_EVALUATION = 10, 50
"""The number of episodes that each policy plays, and of further episodes that a policy plays if its
mean return is higher than that of the best policy.
"""


@dataclass(frozen=True)
class RoundPlan:
    """The number of epochs and rounds of a training, and the steps of a round."""

    epochs: int
    rounds: int
    """The number of rounds in an epoch."""
    acted: int
    """The number of steps of each environment in a round; 0 offline."""
    learns: int
    """The number of graph calls in a round, with `AT_ONCE` optimizer steps each."""
    batch: int
    """The number of transitions in an optimizer step of all replicas."""

    @classmethod
    def of(
        cls, settings: TrainerSettings, task: ControlTask, online: bool, replicas: int
    ) -> RoundPlan:
        """Returns the plan of a training.

        Args:
          settings: the settings of the training; `train.steps` counts environment steps online, and
            optimizer steps offline.
          task: the task of the training.
          online: whether the training acts in environments.
          replicas: the number of replicas that share an optimizer step.
        """
        steps, batch_size = settings.train.steps, settings.train.batch_size
        assert isinstance(steps, int)  # noqa: S101 - `ControlFamily.problems` checks it
        assert isinstance(batch_size, int)  # noqa: S101 - `ControlFamily.problems` checks it
        acted, learns, steps_per_round = 0, 1, AT_ONCE
        if online:
            desired = round(AT_ONCE / task.replay.ratio / task.environments)
            acted = max(1, min(desired, math.ceil(steps / task.environments)))
            steps_per_round = acted * task.environments
            learns = max(1, round(steps_per_round * task.replay.ratio / AT_ONCE))
        all_rounds = math.ceil(steps / steps_per_round)
        rounds = math.ceil(all_rounds / EPOCHS)
        return cls(math.ceil(all_rounds / rounds), rounds, acted, learns, batch_size * replicas)


@dataclass
class Best:
    """The best policy so far."""

    epoch: int = 0
    """The epoch, counted from 1; 0 before the first evaluation."""
    value: float = -math.inf
    """The mean return of the policy."""
    weights: list[np.ndarray] = field(default_factory=list)


@dataclass
class Progress:
    """The progress of a training."""

    epoch: int = 0
    """The number of epochs that have ended."""
    round: int = 0
    """The number of rounds that have ended in the current epoch."""
    losses: list[float] = field(default_factory=list)
    """The losses in the current epoch."""
    history: dict[str, list[float]] = field(default_factory=dict)
    """The values of each metric, one value per epoch."""
    stopped: bool = False
    """Whether early stopping has ended the training."""


class Training:
    """A training of a policy, which starts from the beginning or resumes from a backup."""

    def __init__(
        self,
        settings: TrainerSettings,
        task: ControlTask,
        environment: EnvironmentSettings,
        learner: Learner,
        replay: Replay,
        environments: Environments | None,
        plan: RoundPlan,
        backup: CheckpointLocation,
        solved_at: float | None = None,
    ) -> None:
        """Stores the parts of the training, and restores the backup if there is a backup.

        Args:
          settings: the settings of the training.
          task: the task of the training.
          environment: the environment of the evaluation.
          learner: the Q-network and its optimizer.
          replay: the replay buffer; offline, it contains all logged transitions.
          environments: the environments to act in, or None if offline.
          plan: the numbers of epochs, rounds and steps.
          backup: the location of the backup.
          solved_at: the mean return at which the environment is solved, or None if undefined.
        """
        self._solved_at = solved_at
        self._settings, self._task, self._environment = settings, task, environment
        self._learner, self._replay, self._environments = learner, replay, environments
        self._plan, self._backup = plan, backup
        self._random = np.random.default_rng([settings.train.seed, SeedsOf.TRAINING])
        self._saved_at = 0
        self.progress, self.best = Progress(), Best()
        self.resumed_at = 0
        """The number of optimizer steps in the restored backup, or 0 without a backup."""
        self.notes: list[str] = []
        """Notes for the summary of the run."""
        self._restore()

    def run(self, on_epoch: Callable[[int, Mapping[str, float]], None]) -> None:
        """Trains the policy to the end.

        Args:
          on_epoch: a function that is called after each epoch with its number, counted from 1, and
            its metrics.

        Raises:
          TrainingError: the environment fails, or the loss is not a number.
        """
        progress, plan = self.progress, self._plan
        while progress.epoch < plan.epochs and not progress.stopped:
            while progress.round < plan.rounds:
                self._round()
                progress.round += 1
                every = self._backup.every
                if every and self._learner.steps - self._saved_at >= every:
                    self._save()
            self._end_epoch()
            on_epoch(
                progress.epoch, {name: values[-1] for name, values in progress.history.items()}
            )
            self._save()

    @property
    def _finished_share(self) -> float:
        """The completed share of the training."""
        plan = self._plan
        rounds = self.progress.epoch * plan.rounds + self.progress.round
        return rounds / (plan.epochs * plan.rounds)

    def _round(self) -> None:
        if self._environments is not None:
            for _ in range(self._plan.acted):
                self._act(self._environments)
            if len(self._replay) < self._task.replay.begins:
                return
        beta = self._task.replay.beta + self._finished_share * (1 - self._task.replay.beta)
        for _ in range(self._plan.learns):
            batch = self._replay.draw(AT_ONCE * self._plan.batch, self._random, beta)
            errors, loss = self._learner.learn(batch, AT_ONCE)
            self._replay.update(batch.indices, errors)
            self.progress.losses.append(loss)

    def _act(self, environments: Environments) -> None:
        count = len(environments.observations)
        explores = self._random.random(count) < self._task.exploration.at(self._finished_share)
        actions = self._random.integers(environments.actions, size=count)
        if not explores.all():
            actions = np.where(explores, actions, self._learner.act(environments.observations))
        self._replay.add(environments.step(actions))

    def _end_epoch(self) -> None:
        progress = self.progress
        progress.epoch, progress.round = progress.epoch + 1, 0
        value = self._evaluate()
        metrics = {"val_return": value}
        # Without a loss or a return in the epoch, the mean is 0.
        metrics["loss"] = float(np.mean(progress.losses or [0.0]))
        if self._environments is not None:
            ended = self._environments.ended or progress.history.get("return", [0.0])[-1:]
            metrics["return"] = float(np.mean(ended))
            self._environments.ended = []
        progress.losses = []
        for name, metric in metrics.items():
            progress.history.setdefault(name, []).append(metric)
        progress.stopped = self._stops_early()
        detail = f"return {value:.1f}, best {self.best.value:.1f}, loss {metrics['loss']:.4g}"
        report_progress(progress.epoch, self._plan.epochs, "epoch", detail, AT_MOST)

    def _evaluate(self) -> float:
        """Returns the mean return of the current policy; stores the policy if it is the best."""
        returns = self._play(range(_FIRST_EVALUATION))
        value = float(returns.mean())
        if value > self.best.value:
            # By chance, the first episodes may have high returns, so more episodes are played.
            more = self._play(range(_FIRST_EVALUATION, _FIRST_EVALUATION + _SECOND_EVALUATION))
            value = float(np.concatenate([returns, more]).mean())
            if value > self.best.value:
                self.best = Best(self.progress.epoch, value, self._learner.get_weights())
        return value

    def _play(self, numbers: range) -> np.ndarray:
        seed = self._settings.train.seed
        seeds = [episode_seed(seed, SeedsOf.CHOICE, number) for number in numbers]
        return play(self._learner.act, self._environment, seeds).returns

    def _stops_early(self) -> bool:
        """Returns whether early stopping ends the training after this epoch."""
        match self._settings.train.early_stopping:
            case None | False:
                return False
            case EarlyStoppingSettings(patience=patience):
                pass
            case _ if self._solved_at is not None:
                waited = self.progress.epoch - self._first_best
                return self.best.value >= self._solved_at and waited >= PATIENCE_IF_SOLVED
            case _:
                patience = PATIENCE
        return self.progress.epoch - max(self._first_best, self._stopping_start) >= patience

    @property
    def _stopping_start(self) -> int:
        """The first epoch from which patience counts.

        By then, exploration has its final share and the optimizer has begun.
        """
        plan, task = self._plan, self._task
        if self._environments is None:
            return 0
        steps_per_epoch = plan.rounds * plan.acted * task.environments
        explored = math.ceil(task.exploration.share * plan.epochs)
        return max(explored, math.ceil(task.replay.begins / steps_per_epoch))

    @property
    def _first_best(self) -> int:
        """The first epoch whose mean return is at least that of the best policy."""
        values = self.progress.history["val_return"]
        return next(epoch for epoch, value in enumerate(values, 1) if value >= self.best.value)

    def _save(self) -> None:
        self._saved_at = self._learner.steps
        if not self._backup.writes:
            return
        environments = self._environments
        notes = {
            "plan": asdict(self._plan),
            "progress": asdict(self.progress),
            "random": self._random.bit_generator.state,
            "environments": environments and environments.get_state(),
            "best": {"epoch": self.best.epoch, "value": self.best.value},
            "saved_at": self._saved_at,
        }
        weights = {str(index): array for index, array in enumerate(self.best.weights)}
        arrays = {"learner": self._learner.get_state(), "best": weights}
        if environments is None:  # The logged transitions are read from the data again.
            arrays["replay"] = self._replay.get_priorities()
        else:
            arrays["replay"] = self._replay.get_state()
        save_checkpoint(self._backup.directory, notes, arrays)

    def _restore(self) -> None:
        backup = load_checkpoint(self._backup.directory)
        if backup is None:
            return
        notes, arrays = backup
        if notes["plan"] != asdict(self._plan):
            logger.warning(
                "Training starts from the beginning, as the backup in %s has a different number of"
                " steps or replicas.",
                self._backup.directory,
            )
            return
        self.progress = Progress(**notes["progress"])
        self._random.bit_generator.state = notes["random"]
        weights = arrays.get("best", {})
        best = [weights[str(index)] for index in range(len(weights))]
        self.best = Best(**notes["best"], weights=best)
        self._learner.set_state(arrays["learner"])
        self._saved_at = notes["saved_at"]
        self.resumed_at = self._learner.steps
        if self._environments is None:
            self._replay.set_priorities(arrays.get("replay", {}))
            return
        self._replay.set_state(arrays["replay"])
        restarted = self._environments.set_state(notes["environments"])
        self._replay.truncate(restarted)
        if restarted:
            self.notes.append(
                f"after the interruption, {len(restarted)} environments began a new episode, as"
                " their episodes do not depend only on the seed and the actions"
            )


@dataclass(frozen=True)
class CheckpointLocation:
    """The location and interval of a training's backups."""

    directory: str
    """The folder as a path or URI."""
    every: int | None
    """The number of optimizer steps between two backups, or None for a backup only at the end of
    each epoch."""
    writes: bool = True
    """Whether this process writes backups."""
