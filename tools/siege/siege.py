"""What all attacks share: the server, its clients, the faults, and what the seed decides."""

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

_LOOK_SECONDS = 3.0
"""In which a server that looks each second has seen a version, and would answer by it."""
_COME_SECONDS = 30.0
"""In which the right version has to answer, also one that is tried again."""
_ANSWER_SECONDS = 90.0
_CHECK_SECONDS = 0.5


WHOLE = "siege"
"""In place of a kind, where something is of no single attack."""


@dataclass(frozen=True)
class Attack:
    """One of a kind, which the seed decides."""

    kind: str
    number: int
    """Among those of the kind."""
    seed: int

    @property
    def chance(self) -> random.Random:
        """What it draws from, whatever else is played."""
        return random.Random(f"{self.seed} {self.kind} {self.number}")  # noqa: S311


def draw(seed: int, kinds: Mapping[str, object], count: int) -> list[Attack]:
    """Attacks of every kind in turn, in an order that the seed decides.

    Args:
      seed: of the order, and of what each attack draws.
      kinds: by name.
      count: of attacks.
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
class Played:
    """An attack, and when it was, by the monotonic clock."""

    attack: Attack
    began: float
    ended: float


class Siege:
    """A server, its clients, and what was found so far."""

    def __init__(self, server: Server, load: Load, store: Store, console: Console) -> None:
        self.server, self.load, self.store, self._console = server, load, store, console
        self.faults: list[Fault] = []
        self.played: list[Played] = []
        self.deaths = 0
        """How often the server ended and no attack was to end it."""
        self._attack = Attack(WHOLE, 0, 0)
        self._tracebacks = 0

    def fault(self, said: str, attack: Attack | None = None) -> None:
        """Writes down what did not hold, of the attack that is played or of another."""
        self.faults.append(Fault(attack or self._attack, said))
        self.say(f"    {self.faults[-1]}", "red")

    def say(self, line: str, style: str = "") -> None:
        """A line of progress."""
        self._console.print(line, style=style, markup=False, highlight=False)

    @contextmanager
    def playing(self, attack: Attack) -> Iterator[None]:
        """Whatever is found belongs to an attack; looks at the log of the server afterwards."""
        self._attack, found, began = attack, len(self.faults), time.monotonic()
        yield
        self.check_alive()
        self.played.append(Played(attack, began, time.monotonic()))
        tracebacks = self.server.tracebacks()
        if new := tracebacks[self._tracebacks :]:
            self._tracebacks = len(tracebacks)
            self.fault(f"{len(new)} tracebacks in the server's log: {new[-1][:200]}")
        how = "holds" if len(self.faults) == found else "DOES NOT HOLD"
        self.say(
            f"{len(self.played):>4}  {attack.kind} {attack.number}: {how},"
            f" {time.monotonic() - began:.1f} s"
        )

    def stays(self) -> None:
        """Expects that the right version goes on to answer, for as long as a look takes."""
        since = time.monotonic()
        time.sleep(_LOOK_SECONDS)
        asked = self.load.between(since, time.monotonic())
        told = {one.version for one in asked if one.version is not None}
        if told != {self.store.right}:
            self.fault(f"version {self.store.right} is right, and {sorted(told)} answered")

    def comes(self) -> None:
        """Expects that the right version comes to answer; else one is pushed for what is next."""
        if self.load.wait_for_version(self.store.right, _COME_SECONDS):
            return
        told = [one.version for one in self.load.all[-100:] if one.version is not None]
        self.fault(
            f"version {self.store.right} is right, and after {_COME_SECONDS:.0f} s"
            f" {told[-1] if told else 'none'} answers"
        )
        if not self.load.wait_for_version(self.store.push(), _COME_SECONDS):
            self.fault(f"nor does version {self.store.right} answer, which was pushed then")

    def freeze(self, since: float) -> float:
        """Seconds of the client that waited longest from some time until all were answered anew."""
        end = time.monotonic()
        until = end + _ANSWER_SECONDS
        while not self.load.wait_for_all(end, _CHECK_SECONDS):
            self.check_alive()
            if time.monotonic() > until:
                self.fault(f"clients have no answer after {_ANSWER_SECONDS:.0f} s")
                break
        return longest(self.load.between(since, time.monotonic()))

    def check_alive(self) -> None:
        """Expects that the server runs, and starts it where it does not, as Kubernetes would."""
        if not self.server.is_alive:
            self.deaths += 1
            self.fault(f"the server died with exit code {self.server.process.returncode}")
            self.server.wait_ready()
