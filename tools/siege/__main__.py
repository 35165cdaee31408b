"""Runs the siege: `make siege`, or `python -m tools.siege --seed 7 --only huge_picture`."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from tools.siege import hostile, kills, versions
from tools.siege.clients import Orders, make_requests
from tools.siege.confined import MemoryLimit, limit_memory
from tools.siege.connection import CLOSED
from tools.siege.load import Load
from tools.siege.models import Models, make_models
from tools.siege.play import Found, check_load, play, send_hostile
from tools.siege.server import KEY, Server, memory_limit
from tools.siege.siege import WHOLE, Attack, Siege, draw
from tools.siege.versions import Store

_CLIENTS, _RATE = 12, 12.0
_WARM_SECONDS = 2.0
_SHORT = (30, 3, 2)
"""The numbers of hostile requests, damaged versions and kills in a short run."""
_OK = 200


@dataclass(frozen=True)
class Plan:
    """The attacks of a run."""

    seed: int
    hostile: list[Attack]
    versions: list[Attack]
    kills: list[Attack]

    @classmethod
    def of(cls, seed: int, counts: tuple[int, int, int], only: str | None = None) -> Plan:
        """Returns attacks of every kind, or of one kind.

        Args:
          seed: the seed of all random choices.
          counts: the numbers of hostile requests, damaged versions and kills.
          only: the name of a kind; only its attacks out of all are kept.
        """
        sorts: tuple[Mapping[str, object], ...] = (hostile.KINDS, versions.KINDS, kills.KINDS)
        drawn = [draw(seed, kinds, count) for kinds, count in zip(sorts, counts, strict=True)]
        return cls(seed, *([one for one in part if only in (None, one.kind)] for part in drawn))


@contextmanager
def besieged(
    models: Models, folder: Path, console: Console, workers: int = 1
) -> Iterator[tuple[Siege, MemoryLimit]]:
    """Yields a server with clients, and its memory limit; ends all processes afterwards."""
    with limit_memory(memory_limit()) as limit:
        server = Server(models.serving, folder, limit, workers)
        load, siege = None, None
        try:
            if not server.wait_ready():
                raise RuntimeError(f"the server is not ready: {server.log.read_text()[-2000:]}")
            orders = Orders(server.port, KEY, _CLIENTS, _RATE, make_requests(models))
            load = Load(orders, folder)
            siege = Siege(server, load, Store(models), console)
            yield siege, limit
        finally:
            if load is not None:
                load.stop()
            left = server.close()
            if left and siege is not None:
                siege.fault(f"processes are left: {left}")


def besiege(plan: Plan, models: Models, folder: Path, longest: float, console: Console) -> bool:
    """Runs the attacks of a plan, and prints the results.

    Args:
      plan: the attacks to run.
      models: the models to serve.
      folder: the folder for the server's log and the clients' orders.
      longest: the most seconds that clients may wait during a hostile request.
      console: the console for progress and results.

    Returns:
      Whether all expectations held.
    """
    began = time.monotonic()
    with besieged(models, folder, console) as (siege, limit):
        siege.comes()
        time.sleep(_WARM_SECONDS)
        found = send_hostile(siege, plan.hostile, longest)
        play(siege, plan.versions, versions.KINDS)
        if plan.kills:
            siege.server.workers = kills.WORKERS
            siege.server.restart()
        play(siege, plan.kills, kills.KINDS)
        siege.comes()
        version = siege.store.right
        if limit.kills:
            siege.fault(
                f"{limit.kills} processes were killed for memory", Attack(WHOLE, 0, plan.seed)
            )
    counts = check_load(siege, plan.seed)
    _show(plan, siege, found, counts, console)
    console.print(
        f"memory: {siege.server.peak:,.0f} MB at most of {limit.megabytes:,} by {limit.how};"
        f" version {version} answers at the end, the newest that is good and not"
        f" withdrawn; {time.monotonic() - began:.0f} s"
    )
    for fault in siege.faults:
        console.print(f"  {fault}", style="red", markup=False)
    console.print(f"{len(siege.faults)} expectations did not hold")
    return not siege.faults


def _show(plan: Plan, siege: Siege, found: Found, counts: Counter[str], console: Console) -> None:
    statuses = found.statuses
    answered = sum(n for status, n in statuses.items() if status > CLOSED and status != _OK)
    console.print(
        f"seed {plan.seed}: {len(plan.hostile)} hostile requests ({answered} connections refused by"
        f" a status, {statuses[CLOSED]} closed, {statuses[_OK]} answered as good),"
        f" {len(plan.versions)} damaged versions, {len(plan.kills)} kills"
    )
    seconds = np.array([one.seconds for one in siege.load.all] or [0.0])
    troubles = Counter(trouble for one in siege.load.all for trouble in one.troubles)
    tries = ", ".join(f"{n:,} {name}" for name, n in troubles.most_common()) or "none"
    console.print(
        f"{_CLIENTS} clients: {counts['right']:,} answers right, {counts['wrong']:,} wrong,"
        f" {counts['lost']:,} lost; p50 {1000 * np.percentile(seconds, 50):.1f} ms, p99"
        f" {1000 * np.percentile(seconds, 99):.0f} ms; tries that failed: {tries}"
    )
    worst = sorted(found.longest_waits.items(), key=lambda item: -item[1])[:5]
    console.print(
        "longest wait of a client during a hostile request: "
        + ", ".join(f"{seconds:.2f} s ({kind})" for kind, seconds in worst)
        + f"; the server had {found.before:.0f} MB before them, {found.once:.0f} after"
        f" one of each kind and {found.after:.0f} after all"
    )


def main() -> None:
    """Runs the siege that the options specify; exits with 1 if an expectation did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tools.siege", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1000))
    kinds = [*hostile.KINDS, *versions.KINDS, *kills.KINDS]
    kind = "a kind of attack, as progress lines name it"
    parser.add_argument("--only", metavar="KIND", choices=kinds, help=kind)
    parser.add_argument(
        "--short", action="store_true", help="run a few attacks of each kind (a minute)"
    )
    parser.add_argument("--hostile", type=int, default=200, help="the number of hostile requests")
    parser.add_argument("--versions", type=int, default=20, help="the number of damaged versions")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument(
        "--longest", type=float, default=2.0, help="the longest wait of a client, in seconds"
    )
    options = parser.parse_args()
    counts = _SHORT if options.short else (options.hostile, options.versions, options.kills)
    plan = Plan.of(options.seed, counts, options.only)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Runs the cleanup.
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="scopeline-siege-") as scratch:
        models = make_models(Path(scratch))
        console.print("two models are made")
        held = besiege(plan, models, Path(scratch), options.longest, console)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
