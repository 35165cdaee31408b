"""The search: starts and watches the processes that run trials, and reports the progress."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.processes.ending import POLL_SECONDS
from components.processes.failures import Failure
from components.processes.launcher import Launcher, Place, WorkerEvent, WorkerSpec
from components.processes.stopping import defer_stop
from components.processes.supervisor import WatchedWorker
from components.tuner.records import (
    SHARE_OF_TIME,
    Final,
    TrialRecord,
    TrialState,
    best_of,
    choose,
    has_too_many_failures,
    plan_finals,
)
from components.tuner.study import Study
from trainer_module.errors import TrainingError, counted
from trainer_module.runtime import ABOUT, report_notice, report_search, report_trial
from trainer_module.settings.durations import show_seconds
from trainer_module.tuning.plan import SearchPlan

logger = logging.getLogger(__name__)

MODULE = "components.tuner.worker"

MAX_EARLY_FAILURES = 3
"""The number of successive processes that may end without beginning a trial; then the search
fails."""


@dataclass(frozen=True)
class SearchJob:
    """The description of a search for its processes."""

    plan: SearchPlan
    folder: str
    """The folder of the study and its trials, from which the search resumes after a kill."""
    arguments: Mapping[str, Any]
    """The values of TFX's FnArgs, as JSON."""
    runtime: Mapping[str, Any]
    has_own_split: bool
    """Whether trials are measured on another split than the train split."""


@dataclass
class _Member:
    """A running process of the search."""

    name: str
    worker: WatchedWorker
    events: list[WorkerEvent]
    """The events of the process that are not processed yet."""
    has_begun: bool = False
    """Whether the process has begun a trial."""
    finals: list[Final] = field(default_factory=list)
    """The remaining final training runs of the process, or an empty list for a process that runs
    trials.
    """
    joins: bool = False
    """Whether the process chooses the members of an ensemble."""


class Search:
    """Runs one search to its end."""

    def __init__(self, launcher: Launcher, job: SearchJob) -> None:
        """Opens the study of the search.

        Raises:
          ConfigError: the folder has a study of another search space.
        """
        self._launcher = launcher
        self._job = job
        self._tune = job.plan.tune
        self._objective = job.plan.objective
        self._study = Study(job.folder, job.plan)
        self._members: list[_Member] = []
        self._started = 0
        self._early_failures = 0
        self._reported: set[int] = set()
        self._deadline: float | None = None
        """The deadline of the trials, and later of the final training runs."""
        self._end = math.inf
        self._joins = job.plan.searches_members
        self._has_finals = self._tune.is_automatic and not job.has_own_split and not self._joins

    def run(self) -> list[TrialRecord]:
        """Runs trials until their number or the time is reached, and then final training runs.

        All processes have ended when it returns.

        Returns:
          All trials, including the trials of interrupted searches that this search resumes.

        Raises:
          TrainingError: no trial was completed; the message contains the cause of the first
            failure.
          ScopelineError: a process could not begin a trial.
        """
        earlier = self._study.trials()
        self._reported = {trial.number for trial in earlier if trial.has_ended}
        if self._reported:
            report_notice(f"resumes after {counted(len(self._reported), 'trial')}")
        self._set_times(earlier)
        try:
            if not self._study.measured_again() and not any(t.is_joined for t in earlier):
                self._start_all(interrupted=self._study.interrupted())
                self._watch()
            for number in self._study.interrupted():
                self._study.stop(number)
            if self._has_finals:
                self._measure_again()
            if self._joins:
                self._join()
        finally:
            self._stop_all()
        return self._conclude()

    def _set_times(self, trials: Sequence[TrialRecord]) -> None:
        """Sets the deadlines of the trials and of the search.

        The time that earlier, killed searches have used is subtracted.
        """
        if (limit := self._tune.max_seconds) is None:
            return
        used = (
            sum(trial.seconds + trial.seconds_again for trial in trials) / self._job.plan.parallel
        )
        self._end = time.time() + limit - used
        self._deadline = self._end - (limit * SHARE_OF_TIME if self._has_finals else 0)

    def _watch(self) -> None:
        """Watches until the processes have ended; stops the processes if the time is over."""
        while self._members:
            self._poll()
            if self._deadline is not None and time.time() > self._deadline:
                if time.time() > self._end or self._chosen(self._study.trials()):
                    self._stop_all()
                    return
                self._deadline = self._end
            time.sleep(POLL_SECONDS)

    def _stop_all(self) -> None:
        with defer_stop():
            self._launcher.stop_all()
        self._members.clear()

    def _measure_again(self) -> None:
        """Performs the final training runs, with other parts of the train split held out."""
        seconds = None
        if self._deadline is not None:
            self._deadline = self._end
            seconds = (self._end - time.time()) * self._job.plan.parallel
        finals = plan_finals(self._study.trials(), self._objective, seconds)
        done = self._study.measured_again()
        if remaining := [final for final in finals if final not in done]:
            numbers = {number for number, _ in finals}
            report_notice(
                f"trains the config and {counted(len(numbers) - 1, 'trial')} again on other folds"
            )
            self._start_all(finals=remaining)
            self._watch()

    def _join(self) -> None:
        """Chooses the settings of an ensemble's members, in a process that has the data."""
        trials = self._study.trials()
        config = self._chosen(trials)
        if config is None or config.is_joined or trials[1:] == []:
            return
        self._deadline = None
        self._start([], [], joins=True)
        self._watch()

    def _chosen(self, trials: Sequence[TrialRecord]) -> TrialRecord | None:
        """Returns the trial that the search would choose if it ended now."""
        return choose(trials, self._objective, self._tune.is_automatic, self._joins)

    def _start_all(self, interrupted: Sequence[int] = (), finals: Sequence[Final] = ()) -> None:
        count = self._job.plan.parallel
        if count > 1:
            self._launcher.allocate([Place("worker", i) for i in range(count)])
        for index in range(count):
            if finals[index::count] or not finals:
                self._start(interrupted[index::count], finals[index::count])

    def _start(
        self, interrupted: Sequence[int], finals: Sequence[Final], joins: bool = False
    ) -> None:
        self._started += 1
        # The name has to be unique: another search may have a process with this number.
        name = f"{os.getpid()}-{time.time_ns()}-{self._started}"
        payload = {
            "name": name,
            "plan": self._job.plan.model_dump(mode="json", exclude_unset=True),
            "folder": self._job.folder,
            "arguments": dict(self._job.arguments),
            "runtime": dict(self._job.runtime),
            "has_own_split": self._job.has_own_split,
            "interrupted": list(interrupted),
            "finals": list(finals),
            "joins": joins,
            "deadline": self._deadline,
        }
        label = "the search" if self._job.plan.parallel == 1 else f"search {self._started}"
        spec = WorkerSpec(Place("worker", self._started - 1, label=label), MODULE, payload)
        events: list[WorkerEvent] = []
        worker = WatchedWorker(spec, self._launcher.start(spec), events.append)
        self._members.append(_Member(name, worker, events, finals=list(finals), joins=joins))

    def _poll(self) -> None:
        for member in list(self._members):
            member.worker.poll()
            for event in member.events:
                self._handle_event(member, event.kind, event.values)
            member.events.clear()
            if member.worker.has_ended:
                self._members.remove(member)
                if member.worker.failure is not None:
                    self._handle_failure(member, member.worker.failure)

    def _handle_event(self, member: _Member, kind: str, values: Mapping[str, Any]) -> None:
        if kind == "begun":
            member.has_begun = True
            self._report(values["number"], 0)
        elif kind == "epoch":
            self._report(values["number"], values["epoch"])
        elif kind == "ended":
            self._report(None, 0)
        elif kind == "measured":
            del member.finals[0]
            self._report(None, 0)

    def _handle_failure(self, member: _Member, failure: Failure) -> None:
        """Records the trials of a process that died as failed, and starts another process."""
        if failure.error_type:
            raise replace(failure, worker="the search").to_exception(
                member.worker.handle.log_tail()
            )
        failure = replace(failure, worker="it")
        for final in member.finals[:1]:
            self._study.measure_again(final, None, 0.0)
        for number in self._study.running(member.name):
            self._study.fail(number, failure.sentence.removeprefix("it "))
            report_notice(
                f"trial {number} {failure.sentence.removeprefix('it ')}; the search continues"
            )
        self._early_failures = 0 if member.has_begun else self._early_failures + 1
        if self._early_failures >= MAX_EARLY_FAILURES:
            raise failure.to_exception(member.worker.handle.log_tail())
        if member.joins:
            report_notice(f"the members were not compared ({failure.sentence}); the config is used")
        elif member.finals[1:]:
            self._start([], member.finals[1:])
        elif not member.finals and not has_too_many_failures(self._study.trials()):
            self._start([], [])

    def _report(self, current: int | None, epoch: int) -> None:
        """Reports the progress, and each newly ended trial."""
        trials = self._study.trials()
        best = best_of(trials, self._objective)
        ended = [trial for trial in trials if trial.has_ended]
        seconds_left = None if self._deadline is None else max(0.0, self._deadline - time.time())
        for trial in ended:
            if trial.number not in self._reported:
                self._reported.add(trial.number)
                search_fields = {"objective": self._objective.name, "is_best": trial == best}
                report_trial({**trial.model_dump(mode="json"), **search_fields})
        details = [] if current is None else [f"trial {current}"]
        details += [f"epoch {epoch}"] if epoch else []
        if best is not None:
            details.append(f"best {self._objective.name} {best.value:.4g} (trial {best.number})")
        if seconds_left is not None:
            details.append(f"{show_seconds(seconds_left)} left")
        left = ABOUT if seconds_left is None else ""
        report_search(len(ended), self._tune.max_trials, ", ".join(details), left)

    def _conclude(self) -> list[TrialRecord]:
        trials = self._study.trials()
        if self._chosen(trials) is not None:
            return trials
        failed = [trial for trial in trials if trial.state is TrialState.FAILED]
        if failed and len(failed) == len([t for t in trials if t.state is not TrialState.STOPPED]):
            count = "the only trial" if len(failed) == 1 else f"all {len(failed)} trials"
            raise TrainingError(f"{count} failed; the error of the first: {failed[0].cause}")
        limit = show_seconds(self._tune.max_seconds or 0)
        if self._joins and trials and trials[0].cause:
            raise TrainingError(f"the config could not be trained: {trials[0].cause}")
        if self._joins:
            report_notice(
                f"the config was not trained within {limit} (tune.timeout), so that "
                "nothing can be compared with it: the config is not changed"
            )
            return trials
        raise TrainingError(
            f"tune.timeout: no trial ended within {limit}; allow more time, or make trials shorter,"
            " for example with fewer train.epochs."
        )
