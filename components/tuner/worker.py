"""The main function of a process of a search, which `Search` starts."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from components.processes.failures import Failure, describe
from components.processes.worker import Channel
from components.tuner.records import Final, TrialState, has_too_many_failures
from components.tuner.study import Proposal, Study
from trainer_module.runtime import PROGRESS_LOGGER, WorkerContext
from trainer_module.tuning.plan import MemberTrial, SearchPlan
from trainer_module.tuning.trial import BACKUP_FOLDER, TrialRunner

TRIALS_FOLDER = "trials"
"""The folder, in the folder of a search, that has a folder with the curves of each trial."""

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger(__name__)


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Runs interrupted and new trials, performs final training runs, or joins members of trials."""
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    # The search reports trials instead of epochs.
    logging.getLogger(PROGRESS_LOGGER).propagate = False
    # Every trial would repeat messages about each column.
    logging.getLogger("absl").setLevel(logging.WARNING)
    plan = SearchPlan.model_validate(payload["plan"])
    runner = TrialRunner(
        SimpleNamespace(**payload["arguments"]),
        WorkerContext.model_validate(payload["runtime"]),
        plan.objective,
        payload["has_own_split"],
    )
    name, folder = payload["name"], payload["folder"]
    worker = _Worker(plan, Study(folder, plan), runner, name, folder, channel)
    if payload["joins"]:
        worker.join()
    elif payload["finals"]:
        worker.measure_again([(number, part) for number, part in payload["finals"]])
    else:
        worker.run(payload["interrupted"], payload["deadline"])


@dataclass
class _Worker:
    """Runs trials, or performs final training runs, one after the other."""

    _plan: SearchPlan
    _study: Study
    _runner: TrialRunner
    _name: str
    _folder: str
    _channel: Channel

    def run(self, interrupted: list[int], deadline: float | None) -> None:
        """Runs trials until their number or the deadline is reached."""
        for number in interrupted:
            if (proposal := self._study.reopen(number, self._name)) is not None:
                self._run_trial(proposal)
        while deadline is None or time.time() < deadline:
            proposal = (
                None if has_too_many_failures(self._study.trials()) else self._study.ask(self._name)
            )
            if proposal is None:
                return
            self._run_trial(proposal)

    def measure_again(self, finals: list[Final]) -> None:
        """Performs final training runs from scratch; each run holds out another part."""
        for final in finals:
            number, part = final
            self._channel.send("begun", number=number)
            values, start = self._study.values_of(number), time.monotonic()
            value = None
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                try:
                    settings = self._plan.settings(values)
                    value = self._runner.run(settings, values, folder, _never_prune, part).value
                except Exception:  # The other final training runs continue.
                    logger.exception("trial %d failed in fold %d", number, part)
            self._study.measure_again(final, value, time.monotonic() - start)
            self._channel.send("measured")

    def join(self) -> None:
        """Chooses the settings of an ensemble's members by the predictions of all trials."""
        trials = [
            MemberTrial(trial.values, self._folder_of(trial.number))
            for trial in self._study.trials()
            if trial.state is TrialState.DONE
        ]
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            values, result = self._runner.join(self._plan.untuned, trials, folder)
        if values:
            self._study.join(values, result)

    def _folder_of(self, number: int) -> str:
        return os.path.join(self._folder, TRIALS_FOLDER, f"{number:04d}")

    def _run_trial(self, proposal: Proposal) -> None:
        number = proposal.number
        self._channel.send("begun", number=number)
        folder = self._folder_of(number)
        os.makedirs(folder, exist_ok=True)
        logger.info("trial %d: %s", number, proposal.values)

        def report(epoch: int, value: float) -> bool:
            self._channel.send("epoch", number=number, epoch=epoch, value=value)
            return self._study.report(number, epoch, value)

        try:
            settings = self._plan.settings(proposal.values)
            result = self._runner.run(
                settings,
                proposal.values,
                folder,
                report,
                is_of_members=self._plan.searches_members,
            )
        except Exception as error:  # A trial may exceed the memory; the other trials continue.
            logger.exception("trial %d failed", number)
            cause = Failure.of_error(f"trial {number}", describe(error))
            self._study.fail(number, cause.message if cause.user_error else cause.summary)
        else:
            self._study.finish(number, result)
        shutil.rmtree(os.path.join(folder, BACKUP_FOLDER), ignore_errors=True)
        self._channel.send("ended", number=number)


def _never_prune(epoch: int, value: float) -> bool:
    """Returns False, because final training runs are not pruned."""
    del epoch, value
    return False
