"""A study of Optuna: the trials of a search and their results, and the values of the next trial."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from components.tuner.candidates import chosen_kinds, first_kinds, grid, make_pruner, suggest
from components.tuner.records import Final, TrialRecord, TrialState
from trainer_module.errors import ConfigError, counted
from trainer_module.settings.tune import Algorithm
from trainer_module.tuning.plan import MEMBERS, SearchPlan, TrialResult
from trainer_module.tuning.space import KIND

LOCK_SUFFIX = ".lock"


class _Lock(JournalFileOpenLock):
    """A kernel lock on a file; the kernel releases the lock of a killed process.

    Optuna's own lock would remain, and block the other processes. The class derives from Optuna's
    lock only for its type, because the common base class is not public. A process that was killed
    while writing may have left a partial line, which would make the file unreadable.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = FileLock(path + LOCK_SUFFIX)

    def acquire(self) -> bool:
        """Waits for the lock, then removes a partial line at the end of the file."""
        self._lock.acquire()
        cut_half_line(self._path)
        return True

    def release(self) -> None:
        """Releases the lock for other processes."""
        self._lock.release()


def cut_half_line(path: str) -> None:
    """Removes an unterminated last line from a file."""
    if not os.path.exists(path):
        return
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


JOURNAL = "journal.log"
"""The file of the study, in the folder of a search."""

MAX_ATTEMPTS = 12
"""The maximum number of times that a trial is started; after that it counts as failed."""

_NAME, _SPACE, _VALUES, _RESULT, _CAUSE = "scopeline", "space", "values", "result", "cause"
_WORKER, _STOPPED, _ATTEMPTS, _AGAIN = "worker", "stopped", "attempts", "again:"
_JOINED = "joined"


@dataclass(frozen=True)
class Proposal:
    """A trial to run, with its values."""

    number: int
    values: dict[str, Any]


class Study:
    """The trials of one search. Several processes may open the study of a folder."""

    def __init__(self, folder: str, plan: SearchPlan) -> None:
        """Opens the study of a folder, or creates it.

        Raises:
          ConfigError: the folder has a study of another search space.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._plan = plan
        self._settings = plan.untuned
        self._dimensions = plan.dimensions
        self._first_kinds = first_kinds(plan, self._dimensions)
        self._grid = grid(plan, self._dimensions)
        self._open_trials: dict[int, optuna.Trial] = {}
        path = os.path.join(folder, JOURNAL)
        self._ask_lock = FileLock(os.path.join(folder, f"asking{LOCK_SUFFIX}"))
        with self._ask_lock:
            self._storage = JournalStorage(JournalFileBackend(path, lock_obj=_Lock(path)))
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=_NAME,
                direction=plan.objective.direction,
                pruner=make_pruner(plan, self._settings),
                load_if_exists=True,
            )
            self._check_space(folder)

    def _check_space(self, folder: str) -> None:
        space = describe_space(self._plan)
        stored_space = self._study.user_attrs.get(_SPACE)
        if stored_space is None:
            self._study.set_user_attr(_SPACE, space)
        elif stored_space != space:
            different_keys = sorted(
                key
                for key in stored_space.keys() | space.keys()
                if stored_space.get(key) != space.get(key)
            )
            raise ConfigError(
                f"{folder} holds a study of another search space, which differs in "
                f"{', '.join(different_keys)}; delete that folder, or use another folder."
            )

    def interrupted(self) -> list[int]:
        """Returns the numbers of the trials that are running, or that a killed search was
        running.
        """
        return [trial.number for trial in self.trials() if not trial.has_ended]

    def ask(self, worker: str) -> Proposal | None:
        """Returns the next trial, or None if the maximum number of trials is reached."""
        with self._ask_lock:
            number = len(self._study.get_trials(deepcopy=False))
            max_trials = self._plan.tune.max_trials
            if max_trials is not None and number >= max_trials:
                return None
            if self._grid is not None and number >= len(self._grid):
                return None
            if self._plan.searches_members and number:
                if not self._dimensions:
                    return None  # The linear model has no settings to search.
                if self.trials()[0].state is TrialState.FAILED:
                    return None  # No trial can be compared with the config.
            self._study.sampler = self._make_sampler(number)
            trial = self._study.ask()
        return self._propose(trial, worker)

    def reopen(self, number: int, worker: str) -> Proposal | None:
        """Returns an interrupted trial to resume, or None after too many attempts.

        After too many attempts, the trial is recorded as failed.
        """
        attempts = self._frozen_trial(number).user_attrs.get(_ATTEMPTS, 1)
        if attempts >= MAX_ATTEMPTS:
            self.fail(number, f"the trial was interrupted {counted(attempts, 'time')}")
            return None
        self._study.sampler = self._make_sampler(number)
        trial = optuna.trial.Trial(self._study, self._id(number))
        trial.set_user_attr(_ATTEMPTS, attempts + 1)
        return self._propose(trial, worker)

    def _propose(self, trial: optuna.Trial, worker: str) -> Proposal:
        self._open_trials[trial.number] = trial
        trial.set_user_attr(_WORKER, worker)
        values = trial.user_attrs.get(_VALUES)
        if values is None:
            values = self._choose(trial)
            trial.set_user_attr(_VALUES, values)
        return Proposal(trial.number, values)

    def _choose(self, trial: optuna.Trial) -> dict[str, Any]:
        if self._grid is not None:
            return dict(self._grid[trial.number])
        if self._plan.searches_members:
            return self._choose_member(trial)
        chosen: dict[str, Any] = {}
        for dimension in self._dimensions:
            if trial.number < len(self._first_kinds) and dimension.path != KIND:
                continue
            if dimension.is_of(*chosen_kinds(self._settings, chosen)):
                chosen[dimension.path] = suggest(trial, dimension)
        # The first trial of an automatic search is the config itself, without values of the search.
        return (
            chosen if trial.number else {k: v for k, v in chosen.items() if not self._first_kinds}
        )

    def _choose_member(self, trial: optuna.Trial) -> dict[str, Any]:
        """Returns the values of a trial of an ensemble's member; the first trains all members."""
        if not trial.number:
            return {}
        config, *others = self.trials()
        member = self._plan.next_member(
            Counter(name for other in others for name in other.values.get(MEMBERS, ())),
            config.weights,
        )
        own = [d for d in self._dimensions if member in d.kinds]
        return {MEMBERS: [member], **{d.path: suggest(trial, d) for d in own}}

    def report(self, number: int, epoch: int, value: float) -> bool:
        """Records the value of an epoch, and returns whether the trial is pruned."""
        trial = self._open_trials[number]
        if math.isfinite(value) and epoch not in self._frozen_trial(number).intermediate_values:
            trial.report(value, epoch)
        tune = self._plan.tune
        if not tune.prune and tune.algorithm is not Algorithm.HYPERBAND:
            return False
        # The first trials, with default values, are not pruned: other trials are compared with
        # them.
        return trial.should_prune() and number >= len(self._first_kinds)

    def finish(self, number: int, result: TrialResult) -> None:
        """Records the result of a trial."""
        self._store(number, _RESULT, _attributes(result))
        if result.was_pruned:
            self._study.tell(number, state=optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(number, result.value)

    def join(self, values: Mapping[str, Any], result: TrialResult) -> None:
        """Records the ensemble of the best members of all trials."""
        self._study.add_trial(
            optuna.trial.create_trial(
                value=result.value,
                user_attrs={_VALUES: dict(values), _RESULT: _attributes(result), _JOINED: True},
            )
        )

    def fail(self, number: int, cause: str) -> None:
        """Records that a trial has failed, with the cause."""
        self._store(number, _CAUSE, cause)
        self._study.tell(number, state=optuna.trial.TrialState.FAIL)

    def stop(self, number: int) -> None:
        """Records that a trial was ended because the search ended."""
        self._store(number, _STOPPED, True)
        self._study.tell(number, state=optuna.trial.TrialState.FAIL)

    def measure_again(self, final: Final, value: float | None, seconds: float) -> None:
        """Records the result of a final training run.

        Args:
          final: the trial, and the part that was held out.
          value: the value of the objective, or None if the training has failed.
        """
        number, part = final
        # The study stores the result, because Optuna allows no new attributes of an ended trial.
        self._study.set_user_attr(f"{_AGAIN}{number}:{part}", [value, round(seconds, 3)])

    def measured_again(self) -> list[Final]:
        """Returns the final training runs that have ended, including failed ones."""
        return list(self._again())

    def _again(self) -> dict[Final, tuple[float | None, float]]:
        """Returns the value and the seconds of each ended final training run."""
        results = {}
        for key, value in self._study.user_attrs.items():
            if key.startswith(_AGAIN):
                number, part = key.removeprefix(_AGAIN).split(":")
                results[int(number), int(part)] = value
        return results

    def values_of(self, number: int) -> dict[str, Any]:
        """Returns the values of a trial."""
        return dict(self._frozen_trial(number).user_attrs[_VALUES])

    def _store(self, number: int, key: str, value: Any) -> None:
        self._storage.set_trial_user_attr(self._id(number), key, value)

    def _id(self, number: int) -> int:
        """Returns the id of a trial in the storage."""
        study = self._storage.get_study_id_from_name(_NAME)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)

    def _frozen_trial(self, number: int) -> optuna.trial.FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def running(self, worker: str) -> list[int]:
        """Returns the numbers of the trials in progress of a process."""
        return [
            trial.number
            for trial in self._study.get_trials(deepcopy=False)
            if not trial.state.is_finished() and trial.user_attrs.get(_WORKER, worker) == worker
        ]

    def trials(self) -> list[TrialRecord]:
        """Returns all trials, in the order of their numbers."""
        records = [_record(trial) for trial in self._study.get_trials(deepcopy=False)]
        for (number, part), (value, seconds) in self._again().items():
            records[number].seconds_again += seconds
            if value is not None:
                records[number].again[part] = value
        return records

    def _make_sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Returns the sampler for one trial.

        Its proposal depends only on the seed and on earlier trials. A killed search therefore
        resumes with the same proposals.
        """
        seed = (self._settings.train.seed * 1_000_003 + number) % 2**32
        tune = self._plan.tune
        if tune.algorithm in (Algorithm.RANDOM, Algorithm.GRID):
            sampler: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed)
        else:
            sampler = optuna.samplers.TPESampler(
                seed=seed,
                n_startup_trials=min(10, max(4, (tune.max_trials or 40) // 4)),
                constant_liar=self._plan.parallel > 1,
            )
        if number < len(self._first_kinds) and (kind := self._first_kinds[number]):
            with warnings.catch_warnings():
                # Optuna marks this sampler as experimental.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return optuna.samplers.PartialFixedSampler({KIND: json.dumps(kind)}, sampler)
        return sampler


def describe_space(plan: SearchPlan) -> dict[str, Any]:
    """Returns the properties that all trials of a study have in common, by name, for JSON."""
    ranges = {d.name: d.range.model_dump(mode="json", exclude_none=True) for d in plan.dimensions}
    return {
        **ranges,
        "tune.objective": plan.objective.name,
        "tune.algorithm": plan.tune.algorithm.value,
        "train.seed": plan.untuned.train.seed,
    }


def _attributes(result: TrialResult) -> dict[str, Any]:
    return {
        "metrics": dict(result.metrics),
        "examples": result.examples,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "seconds": round(result.seconds, 3),
        "weights": dict(result.weights),
    }


def _record(trial: optuna.trial.FrozenTrial) -> TrialRecord:
    states = optuna.trial.TrialState
    state = {
        states.COMPLETE: TrialState.DONE,
        states.PRUNED: TrialState.PRUNED,
        states.FAIL: TrialState.STOPPED if trial.user_attrs.get(_STOPPED) else TrialState.FAILED,
    }.get(trial.state, TrialState.RUNNING)
    return TrialRecord(
        number=trial.number,
        state=state,
        values=trial.user_attrs.get(_VALUES, {}),
        value=trial.value if trial.state.is_finished() and trial.values else None,
        cause=trial.user_attrs.get(_CAUSE, ""),
        is_joined=trial.user_attrs.get(_JOINED, False),
        **trial.user_attrs.get(_RESULT, {}),
    )
