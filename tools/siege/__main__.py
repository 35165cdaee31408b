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
from tools.siege.clients import ClientConfig, make_requests
from tools.siege.confined import MemoryLimit, limit_memory
from tools.siege.connection import CLOSED
from tools.siege.load import Load
from tools.siege.models import Models, make_models
from tools.siege.play import Statistics, check_load, play, send_hostile
from tools.siege.server import KEY, Server, memory_limit
from tools.siege.siege import WHOLE, Attack, Siege, draw
from tools.siege.versions import Store

_CLIENTS, _RATE = 12, 12.0
_WARM_UP_SECONDS = 2.0
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
          only: the name of a kind, to run only its attacks, or None for all kinds.
        """
        all_kinds: tuple[Mapping[str, object], ...] = (hostile.KINDS, versions.KINDS, kills.KINDS)
        attacks = [draw(seed, kinds, count) for kinds, count in zip(all_kinds, counts, strict=True)]
        return cls(seed, *([a for a in part if only in (None, a.kind)] for part in attacks))


@contextmanager
def start_siege(
    models: Models, folder: Path, console: Console, workers: int = 1
) -> Iterator[tuple[Siege, MemoryLimit]]:
    """Starts a server with clients, yields them with the memory limit, and ends all processes."""
    with limit_memory(memory_limit()) as limit:
        server = Server(models.serving, folder, limit, workers)
        load, siege = None, None
        try:
            if not server.wait_ready():
                raise RuntimeError(f"the server is not ready: {server.log.read_text()[-2000:]}")
            config = ClientConfig(server.port, KEY, _CLIENTS, _RATE, make_requests(models))
            load = Load(config, folder)
            siege = Siege(server, load, Store(models), console)
            yield siege, limit
        finally:
            if load is not None:
                load.stop()
            remaining = server.close()
            if remaining and siege is not None:
                siege.fault(f"processes of the server still run: {remaining}")


def run_siege(plan: Plan, models: Models, folder: Path, longest: float, console: Console) -> bool:
    """Runs the attacks of a plan, and prints the results.

    Args:
      folder: the folder for the server's log and the configuration of the clients.
      longest: the maximum number of seconds that clients may wait during a hostile request.

    Returns:
      Whether all expectations passed.
    """
    began = time.monotonic()
    with start_siege(models, folder, console) as (siege, limit):
        siege.expect_switch()
        time.sleep(_WARM_UP_SECONDS)
        statistics = send_hostile(siege, plan.hostile, longest)
        play(siege, plan.versions, versions.KINDS)
        if plan.kills:
            siege.server.workers = kills.WORKERS
            siege.server.restart()
        play(siege, plan.kills, kills.KINDS)
        siege.expect_switch()
        version = siege.store.expected
        if limit.kills:
            siege.fault(
                f"{limit.kills} processes were killed for memory", Attack(WHOLE, 0, plan.seed)
            )
    counts = check_load(siege, plan.seed)
    _show(plan, siege, statistics, counts, console)
    console.print(
        f"memory: {siege.server.peak:,.0f} MB at most of {limit.megabytes:,} by {limit.mechanism};"
        f" version {version}, the newest version that is good and not withdrawn, answers at the"
        f" end; {time.monotonic() - began:.0f} s"
    )
    for fault in siege.faults:
        console.print(f"  {fault}", style="red", markup=False)
    console.print(f"{len(siege.faults)} expectations did not hold")
    return not siege.faults


def _show(
    plan: Plan, siege: Siege, statistics: Statistics, counts: Counter[str], console: Console
) -> None:
    statuses = statistics.statuses
    answered = sum(n for status, n in statuses.items() if status > CLOSED and status != _OK)
    console.print(
        f"seed {plan.seed}: {len(plan.hostile)} hostile requests ({answered} answered with an error"
        f" status, {statuses[CLOSED]} connections closed, {statuses[_OK]} answered with status"
        " 200),"
        f" {len(plan.versions)} damaged versions, {len(plan.kills)} kills"
    )
    seconds = np.array([request.seconds for request in siege.load.completed] or [0.0])
    troubles = Counter(t for request in siege.load.completed for t in request.troubles)
    tries = ", ".join(f"{n:,} {name}" for name, n in troubles.most_common()) or "none"
    console.print(
        f"{_CLIENTS} clients: {counts['right']:,} correct and {counts['wrong']:,} wrong answers,"
        f" {counts['lost']:,} lost requests; p50 {1000 * np.percentile(seconds, 50):.1f} ms, p99"
        f" {1000 * np.percentile(seconds, 99):.0f} ms; failed tries: {tries}"
    )
    worst = sorted(statistics.longest_waits.items(), key=lambda item: -item[1])[:5]
    console.print(
        "longest wait of a client during a hostile request: "
        + ", ".join(f"{seconds:.2f} s ({kind})" for kind, seconds in worst)
        + f"; the server's memory was {statistics.before:.0f} MB before the hostile requests,"
        f" {statistics.once:.0f} MB after a request of each kind and"
        f" {statistics.after:.0f} MB at the end"
    )


def main() -> None:
    """Runs the siege that the options specify; exits with 1 if an expectation did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tools.siege", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1000))
    kinds = [*hostile.KINDS, *versions.KINDS, *kills.KINDS]
    kind = "a kind of attack, named as in the lines of progress"
    parser.add_argument("--only", metavar="KIND", choices=kinds, help=kind)
    parser.add_argument(
        "--short", action="store_true", help="run a few attacks of each kind (a minute)"
    )
    parser.add_argument("--hostile", type=int, default=200, help="the number of hostile requests")
    parser.add_argument("--versions", type=int, default=20, help="the number of damaged versions")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument(
        "--longest", type=float, default=2.0, help="the maximum wait of a client in seconds"
    )
    options = parser.parse_args()
    counts = _SHORT if options.short else (options.hostile, options.versions, options.kills)
    plan = Plan.of(options.seed, counts, options.only)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # The exit runs the cleanup.
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="scopeline-siege-") as scratch:
        models = make_models(Path(scratch))
        console.print("two models are trained")
        passed = run_siege(plan, models, Path(scratch), options.longest, console)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
