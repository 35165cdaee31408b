"""The state that all attacks share: the server, its clients, the faults, and the random choices."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from tools.siege.load import Load, longest
from tools.siege.server import Server

if TYPE_CHECKING:
    from tools.siege.versions import Store

_POLL_SECONDS = 3.0
"""The seconds after which a server that polls every second would serve a new version."""
_SWITCH_SECONDS = 30.0
"""The seconds within which the right version has to answer, even after a retry."""
_ANSWER_SECONDS = 90.0
_CHECK_SECONDS = 0.5


WHOLE = "siege"
"""The kind of faults that belong to no single attack."""


@dataclass(frozen=True)
class Attack:
    """An attack of a kind, determined by the seed."""

    kind: str
    number: int
    """The number of the attack among those of its kind."""
    seed: int

    @property
    def chance(self) -> random.Random:
        """A random generator of the attack, independent of other attacks."""
        return random.Random(f"{self.seed} {self.kind} {self.number}")  # noqa: S311


def draw(seed: int, kinds: Mapping[str, object], count: int) -> list[Attack]:
    """Returns attacks of every kind in turn, in an order determined by the seed.

    Args:
      seed: the seed of the order, and of the attacks' random choices.
      kinds: the kinds by name.
      count: the number of attacks.
    """
    chance, names = random.Random(seed), list[str]()  # noqa: S311 - a plan, no secret
    while kinds and len(names) < count:
        names += chance.sample(sorted(kinds), len(kinds))
    names = names[:count]
    return [Attack(kind, names[:place].count(kind), seed) for place, kind in enumerate(names)]


@dataclass(frozen=True)
class Fault:
    """An expectation that did not hold."""

    attack: Attack
    said: str

    def __str__(self) -> str:
        only = "" if self.attack.kind == WHOLE else f" --only {self.attack.kind}"
        again = f'make siege ARGS="--seed {self.attack.seed}{only}"'
        return f"{self.attack.kind} {self.attack.number}: {self.said} [{again}]"


@dataclass(frozen=True)
class AttackTime:
    """An attack, and its times by the monotonic clock."""

    attack: Attack
    began: float
    ended: float


class Siege:
    """A server, its clients, and the faults found so far."""

    def __init__(self, server: Server, load: Load, store: Store, console: Console) -> None:
        self.server, self.load, self.store, self._console = server, load, store, console
        self.faults: list[Fault] = []
        self.played: list[AttackTime] = []
        self.deaths = 0
        """The number of exits of the server that no attack intended."""
        self._attack = Attack(WHOLE, 0, 0)
        self._tracebacks = 0

    def fault(self, said: str, attack: Attack | None = None) -> None:
        """Records a fault of the current attack, or of another one."""
        self.faults.append(Fault(attack or self._attack, said))
        self.say(f"    {self.faults[-1]}", "red")

    def say(self, line: str, style: str = "") -> None:
        """Prints a line of progress."""
        self._console.print(line, style=style, markup=False, highlight=False)

    @contextmanager
    def playing(self, attack: Attack) -> Iterator[None]:
        """Attributes faults in the `with` block to an attack, including tracebacks in the log."""
        self._attack, found, began = attack, len(self.faults), time.monotonic()
        yield
        self.check_alive()
        self.played.append(AttackTime(attack, began, time.monotonic()))
        tracebacks = self.server.tracebacks()
        if new := tracebacks[self._tracebacks :]:
            self._tracebacks = len(tracebacks)
            self.fault(f"{len(new)} tracebacks in the server's log: {new[-1][:200]}")
        how = "holds" if len(self.faults) == found else "FAILED"
        self.say(
            f"{len(self.played):>4}  {attack.kind} {attack.number}: {how},"
            f" {time.monotonic() - began:.1f} s"
        )

    def stays(self) -> None:
        """Expects the right version to keep answering, until the server has polled again."""
        since = time.monotonic()
        time.sleep(_POLL_SECONDS)
        asked = self.load.between(since, time.monotonic())
        told = {one.version for one in asked if one.version is not None}
        if told != {self.store.right}:
            self.fault(f"version {self.store.right} is right, and {sorted(told)} answered")

    def comes(self) -> None:
        """Expects the right version to answer soon; otherwise pushes one for the next attacks."""
        if self.load.wait_for_version(self.store.right, _SWITCH_SECONDS):
            return
        told = [one.version for one in self.load.all[-100:] if one.version is not None]
        self.fault(
            f"version {self.store.right} is right, and after {_SWITCH_SECONDS:.0f} s"
            f" {told[-1] if told else 'none'} answers"
        )
        if not self.load.wait_for_version(self.store.push(), _SWITCH_SECONDS):
            self.fault(f"nor does version {self.store.right} answer, which was pushed then")

    def longest_wait(self, since: float) -> float:
        """Returns the longest wait of a client in seconds, until all clients are answered again."""
        end = time.monotonic()
        until = end + _ANSWER_SECONDS
        while not self.load.wait_for_all(end, _CHECK_SECONDS):
            self.check_alive()
            if time.monotonic() > until:
                self.fault(f"clients have no answer after {_ANSWER_SECONDS:.0f} s")
                break
        return longest(self.load.between(since, time.monotonic()))

    def check_alive(self) -> None:
        """Expects the server to run, and restarts it otherwise, as Kubernetes would."""
        if not self.server.is_alive:
            self.deaths += 1
            self.fault(f"the server died with exit code {self.server.process.returncode}")
            self.server.wait_ready()
