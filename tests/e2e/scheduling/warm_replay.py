"""A replay whose nights begin with TFX imported, as do the runs that they start, and are short."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection
from pathlib import Path

import ml_metadata as mlmd
import psutil
import warm
from ml_metadata.proto import metadata_store_pb2

from tools.replay import MINOR_COLUMNS, NAME, Replay

LONGEST = 30
"""Seconds that a night takes at most, more or less: a kill may come when all is done."""


class WarmReplay(Replay):
    """A folder of days, played in processes that are forked."""

    def __init__(
        self, folder: Path, days: int, quiet: set[int], poisoned: Collection[int], *settings: str
    ) -> None:
        ignored = [f"features.{name}={{type: ignore}}" for name in MINOR_COLUMNS]
        super().__init__(folder, days, quiet, poisoned, *ignored, *settings)

    def play(self, number: int) -> subprocess.CompletedProcess[str]:
        self.deliver(number)
        return warm.run(self.command(number), capture_output=True, text=True)


def kill_in(process: subprocess.Popen[str], seconds: float) -> None:
    """Kills a process and all below it, if they are still there by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        family = [
            *psutil.Process(process.pid).children(recursive=True),
            psutil.Process(process.pid),
        ]
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()


def kill_night(replay: Replay, day: int, seconds: float) -> None:
    """Begins the night after a day, and kills its scheduler and run after so long.

    A Python of its own starts them: a run that is forked is no child of its scheduler.
    """
    process = subprocess.Popen(
        replay.command(day), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True
    )
    kill_in(process, seconds)
    time.sleep(1)  # The children of a killed run notice.


def check_what_is_left(replay: Replay) -> None:
    """What serves is whole, and the stores open."""
    for version in replay.versions:
        folder = replay.output / NAME / "serving" / NAME / version
        assert (folder / "saved_model.pb").stat().st_size > 0
        index = folder / "variables" / "variables.index"
        assert index.stat().st_size > 0
    replay.event_log.events()
    path = replay.output / NAME / "metadata.db"
    if path.exists():
        connection = metadata_store_pb2.ConnectionConfig()
        connection.sqlite.filename_uri = str(path)
        mlmd.MetadataStore(connection).get_executions()
