"""Runs the nights of a seed: `make chaos`, or `python -m tools.chaos --seed 7 --days 14`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path

from rich.console import Console

from pipeline.records.event_log import EventKind
from tools.chaos.days import DayData, draw
from tools.chaos.play import Player
from tools.chaos.troubles import Receiver, Trouble, small_disk

_DISK_MEGABYTES = 600


def main() -> None:
    """Runs the days that the options specify; exits with 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1000))
    parser.add_argument("--folder", type=Path, default=Path("output/chaos"))
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    folder = options.folder.resolve()
    console = Console(soft_wrap=True)
    console.print(f"seed {options.seed}")
    nights = draw(options.seed, options.days)
    with small_disk(folder / "output", _DISK_MEGABYTES) as is_small:
        player = Player(folder, nights, Receiver(), options.seed)
        faults, good, pushed = 0, 0, 0
        for night in nights:
            if night.trouble is Trouble.DISK and not is_small:
                console.print(
                    "the full disk is skipped: this process cannot mount a small file system"
                )
            outcome = player.play(night)
            faults += len(outcome.faults)
            if night.data is DayData.GOOD and night.trouble is not Trouble.HOLD:
                good += 1
                pushed += EventKind.PUSHED in {event.kind for event in outcome.events}
            console.print(outcome.line())
            for fault in outcome.faults:
                console.print(f"    {fault}", style="red")
    console.print(f"{options.days} nights, {faults} faults; {pushed} of {good} good days pushed")
    # The random error of small evaluations, and earlier shuffled labels, may prevent a push.
    sys.exit(1 if faults or pushed < good / 2 else 0)


if __name__ == "__main__":
    main()
