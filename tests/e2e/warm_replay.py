"""A replay whose nights begin with TFX imported, as do the runs that they start."""

from __future__ import annotations

import subprocess

import warm

from tools.replay import Replay


class WarmReplay(Replay):
    """A folder of days, played in processes that are forked."""

    def play(self, number: int) -> subprocess.CompletedProcess[str]:
        self.deliver(number)
        return warm.run(self.command(number), capture_output=True, text=True)
