"""Runs the scheduler on days of taxi data with a simulated clock, as in docs/scheduling.md.

Each day's trips arrive in the following night; then `schedule --once` runs with the clock at a
quarter past three. Some days have no data, and one day has shuffled labels.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from rich.console import Console

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from components.example_gen.builtin import BUILTIN_DATA  # noqa: E402
from pipeline.records.event_log import EventKind, EventLog, LoggedEvent  # noqa: E402

CONFIG = ROOT / "configs" / "taxi_daily.yaml"
NAME = "taxi_daily"
LABEL = "big_tipper"
FIRST_DAY = date(2024, 1, 1)
ZONE = ZoneInfo("America/Chicago")
RARELY_MISSING = 0.01
"""The share of trips without a value below which a column counts as rarely missing.

Trips without a value in such a column are left out."""
MINOR_COLUMNS = (
    "company",
    "pickup_latitude",
    "pickup_longitude",
    "dropoff_latitude",
    "dropoff_longitude",
    "pickup_community_area",
    "dropoff_community_area",
    "trip_start_month",
    "trip_start_day",
)
"""The columns with little effect on the label; each adds a second to Transform in a night."""
ARRIVAL = time(1, tzinfo=ZONE)
"""The time at which the trips of the previous day arrive."""
CHECK = time(3, 15, tzinfo=ZONE)
"""The time of `schedule --once`, shortly after the time of the config's cron expression."""


class Replay:
    """A folder of days, and the output folder of their models."""

    def __init__(
        self, folder: Path, days: int, quiet: set[int], poisoned: Collection[int], *settings: str
    ) -> None:
        """Prepares the trips of all days.

        Args:
          folder: the folder for the days' files and the output.
          quiet: the days without data, counted from 1.
          poisoned: the days with shuffled labels.
          settings: overrides of the config, `key=value` each.
        """
        self.folder = folder
        self.output = folder / "output"
        self.days = days
        self._quiet = quiet
        self._poisoned = poisoned
        self._settings = settings
        self._trips = list(_deal(_read_trips(self.output / "builtin"), days))

    def day(self, number: int) -> date:
        """Returns the date of a day, counted from 1."""
        return FIRST_DAY + timedelta(days=number - 1)

    def deliver(self, number: int) -> None:
        """Writes the trips of a day, which arrive at one o'clock in the following night."""
        if number in self._quiet:
            return
        rows = self._trips[number - 1]
        if number in self._poisoned:
            labels = [row[LABEL] for row in rows]
            random.Random(number).shuffle(labels)  # noqa: S311 - data, no secret
            rows = [row | {LABEL: label} for row, label in zip(rows, labels, strict=True)]
        path = self.file(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        self.arrive(path, number)

    def file(self, number: int) -> Path:
        """Returns the file of a day's trips."""
        return self.folder / "days" / self.day(number).isoformat() / "trips.csv"

    def arrive(self, path: Path, number: int) -> None:
        """Sets the modification time of a file to the arrival time of a day's trips."""
        arrived = datetime.combine(self.day(number + 1), ARRIVAL).timestamp()
        os.utime(path, (arrived, arrived))

    def command(self, number: int, ahead: timedelta = timedelta()) -> list[str]:
        """Returns the command `schedule --once` for the night after a day; `ahead` shifts its
        clock.
        """
        now = datetime.combine(self.day(number + 1), CHECK) + ahead
        path = self.folder / "days" / "{YYYY}-{MM}-{DD}" / "*.csv"
        settings = [f"data.path={path}", *self._settings]
        return [
            *self.command_line("schedule", "--once", "--now", now.isoformat()),
            *(part for setting in settings for part in ("--set", setting)),
        ]

    def command_line(self, *command: str) -> list[str]:
        """Returns the command line of a command of local_runner.py."""
        runner = [sys.executable, str(ROOT / "local_runner.py"), *command]
        return [*runner, "--config", str(CONFIG), "--output", str(self.output)]

    def play(self, number: int) -> subprocess.CompletedProcess[str]:
        """Delivers a day, and runs the night after it."""
        self.deliver(number)
        return subprocess.run(self.command(number), capture_output=True, text=True, check=False)

    @property
    def event_log(self) -> EventLog:
        """The event log of all decisions and results of the replay."""
        return EventLog(self.output / NAME / "ledger.db")

    @property
    def versions(self) -> list[str]:
        """The versions in the serving folder, oldest first."""
        return sorted(p.name for p in (self.output / NAME / "serving" / NAME).glob("[0-9]*"))

    def summary(self) -> dict[str, Any]:
        """Returns the summary of the newest run."""
        newest = max((self.output / NAME / "runs").iterdir())
        return dict(json.loads((newest / "summary.json").read_text()))


def steps_to_reach(summary: dict[str, Any], loss: float) -> int | None:
    """Returns the number of optimizer steps until the evaluation loss reached a value, or None."""
    training = summary["training"]
    per_epoch = training["steps"] // training["epochs"]
    for epoch, value in enumerate(training["history"]["val_loss"], 1):
        if value <= loss:
            return int(epoch * per_epoch)
    return None


def _read_trips(unpacked: Path) -> list[dict[str, str]]:
    path = Path(BUILTIN_DATA["taxi"].locate(unpacked))
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    rows = []
    for file in files:
        with file.open(newline="") as opened:
            rows += list(csv.DictReader(opened))
    # The schema is inferred from the first day, on which a rarely missing column is probably
    # complete. So a later trip without a value in the column would be an anomaly.
    missing = Counter(column for row in rows for column, value in row.items() if not value)
    rarely_missing = [column for column, n in missing.items() if n < RARELY_MISSING * len(rows)]
    rows = [row for row in rows if all(row[column] for column in rarely_missing)]
    random.Random(0).shuffle(rows)  # noqa: S311 - data, no secret
    return rows


def _deal(rows: list[dict[str, str]], days: int) -> Iterator[list[dict[str, str]]]:
    for day in range(days):
        yield rows[day * len(rows) // days : (day + 1) * len(rows) // days]


def _outcome(events: list[LoggedEvent]) -> str:
    """Returns the outcome of a day, from the events that its night added."""
    outcomes = (EventKind.PUSHED, EventKind.NOT_BLESSED, EventKind.FAILED, EventKind.SKIPPED)
    results = [event for event in events if event.kind in outcomes]
    if not results:
        return "nothing"
    event = results[0]
    return (
        event.kind.value
        if event.kind is EventKind.PUSHED
        else f"{event.kind.value}: {event.message}"
    )


def _report(replay: Replay, console: Console) -> None:
    """Runs all days, and prints a line for each."""
    line = "{:<12}{:>7}{:>11}{:>7}{:>12}  {}"
    console.print(line.format("day", "window", "rows read", "steps", "in service", "result"))
    last_event, first_loss = 0, 0.0
    for number in range(1, replay.days + 1):
        done = replay.play(number)
        events = [event for event in replay.event_log.events() if event.id > last_event]
        last_event = max((event.id for event in events), default=last_event)
        has_run = any(event.kind is EventKind.STARTED for event in events)
        summary = replay.summary() if has_run else {}
        steps = None
        if summary.get("training"):
            first_loss = first_loss or min(summary["training"]["history"]["val_loss"])
            steps = steps_to_reach(summary, first_loss)
        values = (
            replay.day(number).isoformat(),
            len(summary["window"]["spans"]) if has_run else "-",
            _rows_read(events) or "-",
            steps or "-",
            replay.versions[-1] if replay.versions else "-",
            _outcome(events) if done.returncode in (0, 3) else done.stdout + done.stderr,
        )
        console.print(line.format(*values))
    console.print(
        "rows read: the rows of new spans; steps: the steps until the loss reached that of day 1"
    )


def _rows_read(events: list[LoggedEvent]) -> int:
    return sum(sum(e.details["examples"].values()) for e in events if e.kind is EventKind.INGESTED)


def main() -> None:
    """Prepares and runs the days that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument(
        "--quiet", type=int, nargs="*", default=[10, 11], help="the days without trips"
    )
    parser.add_argument("--poisoned", type=int, default=15, help="the day with shuffled labels")
    parser.add_argument("--folder", type=Path, default=Path("output/replay"))
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    quiet = set(options.quiet)
    replay = Replay(options.folder.resolve(), options.days, quiet, [options.poisoned])
    _report(replay, Console(soft_wrap=True))


if __name__ == "__main__":
    main()
