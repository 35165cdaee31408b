"""Runs of nights: a disturbed `schedule --once`, an undisturbed one, and the checks of both."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from pipeline.exit_codes import EXIT_INTERRUPTED
from pipeline.records.event_log import EventKind, LoggedEvent
from tools.chaos.checks import check_night, find_faults, find_half_artifacts
from tools.chaos.days import BadDays, Night
from tools.chaos.troubles import Receiver, Trouble, full_disk, kill_family

_OCCASIONS = "failed, not_blessed, pushed, drift, stale, skipped, left_out, held"
_LONGEST_LOOK = 900
_FIRST_GUESS = 20.0
"""The assumed seconds of a night, until one has been measured."""
_DELIVERIES = 30.0
"""The most seconds that a hanging webhook may add to a night."""
_AHEAD = {Trouble.AHEAD: timedelta(days=30), Trouble.BACK: timedelta(hours=-2)}
_KILLED = -9
_NEXT_LOOK = timedelta(minutes=10)
_SHOWN = (EventKind.PUSHED, EventKind.NOT_BLESSED, EventKind.FAILED, EventKind.SKIPPED)


@dataclass
class Outcome:
    """The result of a night."""

    night: Night
    day: str
    codes: list[int] = field(default_factory=list)
    """The exit codes of the night's commands, the disturbed one first."""
    events: list[LoggedEvent] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """The checks that failed."""

    def line(self) -> str:
        """Returns the result as a line for the console."""
        became = next((event for event in self.events if event.kind in _SHOWN), None)
        what = f"{became.kind.value}: {became.message}" if became else "nothing"
        codes = " ".join(map(str, self.codes))
        kinds = f"{self.day}  {self.night.data:<32}{self.night.trouble:<22}"
        return f"{kinds}{codes:<8}{','.join(self.told):<24}{what[:100]}"


class Player:
    """A runner of nights, one after the other, in one folder."""

    def __init__(
        self,
        folder: Path,
        nights: Sequence[Night],
        receiver: Receiver,
        seed: int,
        start: Callable[..., subprocess.Popen[str]] = subprocess.Popen,
    ) -> None:
        """Prepares the data of all days.

        Args:
          folder: the folder for the days' files and the output.
          nights: the nights to run.
          receiver: the receiver of the notifications.
          seed: the seed of the times at which commands are killed or stopped.
          start: starts a command that is not killed, as `subprocess.Popen` does.
        """
        self.days = BadDays(
            folder,
            nights,
            f"notify={{webhook: {{url: '{receiver.url}'}}, occasions: [{_OCCASIONS}]}}",
            "drift={columns: {trip_miles: {jensen_shannon: 0.5}}, on_drift: fail}",
            "schedule.retry={attempts: 3, backoff: 1s}",
            "schedule.settle=0s",
            "schedule.keep={versions: 3, runs: 5}",
        )
        self._receiver = receiver
        self._start = start
        self._chance = random.Random(seed)  # noqa: S311 - moments, no secret
        self._longest = _FIRST_GUESS
        self._before: list[Night] = []

    def play(self, night: Night) -> Outcome:
        """Runs a day and its night: a disturbed command in case of trouble, then an undisturbed
        one.
        """
        log, told = self.days.event_log, len(self._receiver.told)
        known = max((event.id for event in log.events()), default=0)
        outcome = Outcome(night, self.days.day(night.number).isoformat())
        self.days.deliver(night.number)
        self._disturb(night, outcome)
        outcome.faults += find_faults(self.days)
        outcome.codes.append(self._look(night))
        outcome.events = [event for event in log.events() if event.id > known]
        outcome.told = self._receiver.told[told:]
        outcome.faults += find_faults(self.days)
        outcome.faults += find_half_artifacts(self.days)
        outcome.faults += check_night(
            self._before, night, outcome.codes[-1], outcome.events, outcome.told
        )
        self._before.append(night)
        return outcome

    def _disturb(self, night: Night, outcome: Outcome) -> None:
        """Runs `schedule --once` under the trouble of the night."""
        if night.trouble in _AHEAD:
            outcome.codes.append(self._end(self._begin(night, _AHEAD[night.trouble])))
        elif night.trouble is Trouble.DISK and self.days.output.is_mount():
            with full_disk(self.days.output):
                outcome.codes.append(self._end(self._begin(night)))
        elif night.trouble is Trouble.WEBHOOK:
            began = time.monotonic()
            with self._receiver.hanging():
                outcome.codes.append(self._end(self._begin(night)))
            if (took := time.monotonic() - began) > 2 * self._longest + _DELIVERIES:
                outcome.faults.append(f"a webhook delayed the night: {took:.0f} s")
        elif night.trouble in (Trouble.KILL, Trouble.TERM):
            self._stop(night, outcome)
        elif night.trouble is Trouble.HOLD:
            self._ask("hold")
            served = self.days.versions
            outcome.codes.append(self._end(self._begin(night)))
            if set(self.days.versions) - set(served):
                outcome.faults.append("a version was pushed under a hold")
            self._ask("release")

    def _stop(self, night: Night, outcome: Outcome) -> None:
        kills = night.trouble is Trouble.KILL
        # A forked run is no child of its scheduler, so it could not be found and killed.
        process = self._begin(night, start=subprocess.Popen if kills else self._start)
        try:
            process.wait(self._chance.uniform(0.5, self._longest))
        except subprocess.TimeoutExpired:
            served = self.days.versions
            (kill_family if kills else subprocess.Popen.terminate)(process)
            code = self._end(process)
            if code in (EXIT_INTERRUPTED, _KILLED) and self.days.versions != served:
                outcome.faults.append("a version was pushed after the stop")
            time.sleep(1)  # Lets the children of a killed run exit.
        outcome.codes.append(process.returncode)

    def _ask(self, command: str) -> None:
        """Runs a command of local_runner.py with a reason; raises RuntimeError if it fails."""
        asked = self.days.ask(command, "--reason", "chaos")
        if code := self._end(self._start(asked, stdout=subprocess.DEVNULL, text=True)):
            raise RuntimeError(f"{' '.join(asked)} ended with {code}")

    def _look(self, night: Night) -> int:
        """Runs `schedule --once` when a retry is due; returns its exit code."""
        began = time.monotonic()
        code = self._end(self._begin(night, _NEXT_LOOK))
        self._longest = max(self._longest, time.monotonic() - began)
        return code

    def _begin(
        self,
        night: Night,
        ahead: timedelta = timedelta(),
        start: Callable[..., subprocess.Popen[str]] | None = None,
    ) -> subprocess.Popen[str]:
        command = self.days.command(night.number, ahead)
        quiet = subprocess.DEVNULL
        return (start or self._start)(command, stdout=quiet, stderr=quiet, text=True)

    def _end(self, process: subprocess.Popen[str]) -> int:
        return process.wait(_LONGEST_LOOK)
