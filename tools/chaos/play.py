"""Runs nights: `schedule --once` with a fault, `schedule --once` without a fault, and
the checks.
"""

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
_MAX_COMMAND_SECONDS = 900
_INITIAL_SECONDS = 20.0
"""The assumed duration of a night in seconds, before a night has been measured."""
_DELIVERY_SECONDS = 30.0
"""The maximum number of seconds that a hanging webhook may add to a night."""
_CLOCK_SHIFTS = {Trouble.AHEAD: timedelta(days=30), Trouble.BACK: timedelta(hours=-2)}
_KILLED = -9
_RETRY_DELAY = timedelta(minutes=10)
_RESULTS = (EventKind.PUSHED, EventKind.NOT_BLESSED, EventKind.FAILED, EventKind.SKIPPED)


@dataclass
class Outcome:
    """The result of a night."""

    night: Night
    day: str
    codes: list[int] = field(default_factory=list)
    """The exit codes of the night's commands; the command with the fault is first."""
    events: list[LoggedEvent] = field(default_factory=list)
    notified: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """The checks that failed."""

    def line(self) -> str:
        """Returns the result as a line for the console."""
        result = next((event for event in self.events if event.kind in _RESULTS), None)
        text = f"{result.kind.value}: {result.message}" if result else "nothing"
        codes = " ".join(map(str, self.codes))
        kinds = f"{self.day}  {self.night.data:<32}{self.night.trouble:<22}"
        return f"{kinds}{codes:<8}{','.join(self.notified):<24}{text[:100]}"


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
          seed: the seed of the times at which commands are killed or stopped.
          start: the function that starts commands without a kill, with the interface of
            `subprocess.Popen`.
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
        self._max_seconds = _INITIAL_SECONDS
        self._before: list[Night] = []

    def play(self, night: Night) -> Outcome:
        """Delivers a day's data, and runs its night.

        In a night with a fault, the scheduler runs first with the fault, then without it.
        """
        log, received = self.days.event_log, len(self._receiver.notified)
        last_event = max((event.id for event in log.events()), default=0)
        outcome = Outcome(night, self.days.day(night.number).isoformat())
        self.days.deliver(night.number)
        self._disturb(night, outcome)
        outcome.faults += find_faults(self.days)
        outcome.codes.append(self._run_scheduler(night))
        outcome.events = [event for event in log.events() if event.id > last_event]
        outcome.notified = self._receiver.notified[received:]
        outcome.faults += find_faults(self.days)
        outcome.faults += find_half_artifacts(self.days)
        outcome.faults += check_night(
            self._before, night, outcome.codes[-1], outcome.events, outcome.notified
        )
        self._before.append(night)
        return outcome

    def _disturb(self, night: Night, outcome: Outcome) -> None:
        """Runs `schedule --once` under the trouble of the night."""
        if night.trouble in _CLOCK_SHIFTS:
            outcome.codes.append(self._end(self._begin(night, _CLOCK_SHIFTS[night.trouble])))
        elif night.trouble is Trouble.DISK and self.days.output.is_mount():
            with full_disk(self.days.output):
                outcome.codes.append(self._end(self._begin(night)))
        elif night.trouble is Trouble.WEBHOOK:
            began = time.monotonic()
            with self._receiver.hanging():
                outcome.codes.append(self._end(self._begin(night)))
            if (took := time.monotonic() - began) > 2 * self._max_seconds + _DELIVERY_SECONDS:
                outcome.faults.append(f"a webhook delayed the night: {took:.0f} s")
        elif night.trouble in (Trouble.KILL, Trouble.TERM):
            self._stop(night, outcome)
        elif night.trouble is Trouble.HOLD:
            self._run_command("hold")
            served = self.days.versions
            outcome.codes.append(self._end(self._begin(night)))
            if set(self.days.versions) - set(served):
                outcome.faults.append("a version was pushed under a hold")
            self._run_command("release")

    def _stop(self, night: Night, outcome: Outcome) -> None:
        kills = night.trouble is Trouble.KILL
        # A run of a fork server is not a child of its scheduler, so a kill would not find it.
        process = self._begin(night, start=subprocess.Popen if kills else self._start)
        try:
            process.wait(self._chance.uniform(0.5, self._max_seconds))
        except subprocess.TimeoutExpired:
            served = self.days.versions
            (kill_family if kills else subprocess.Popen.terminate)(process)
            code = self._end(process)
            if code in (EXIT_INTERRUPTED, _KILLED) and self.days.versions != served:
                outcome.faults.append("a version was pushed after the stop")
            time.sleep(1)  # The children of a killed run need time to exit.
        outcome.codes.append(process.returncode)

    def _run_command(self, command: str) -> None:
        """Runs a command of local_runner.py with a reason; raises RuntimeError if it fails."""
        command_line = self.days.command_line(command, "--reason", "chaos")
        if code := self._end(self._start(command_line, stdout=subprocess.DEVNULL, text=True)):
            raise RuntimeError(f"{' '.join(command_line)} ended with {code}")

    def _run_scheduler(self, night: Night) -> int:
        """Runs `schedule --once` when a retry is due; returns its exit code."""
        began = time.monotonic()
        code = self._end(self._begin(night, _RETRY_DELAY))
        self._max_seconds = max(self._max_seconds, time.monotonic() - began)
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
        return process.wait(_MAX_COMMAND_SECONDS)
