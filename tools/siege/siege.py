"""The state that all attacks share: the server, its clients, the faults and the random choices."""

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
"""The seconds within which the expected version must answer, even after a retry."""
_ANSWER_SECONDS = 90.0
_CHECK_SECONDS = 0.5


WHOLE = "siege"
"""The kind of the faults that belong to the whole siege and not to an attack."""


@dataclass(frozen=True)
class Attack:
    """An attack of a kind, which the seed determines."""

    kind: str
    number: int
    """The number of the attack among the attacks of its kind."""
    seed: int

    @property
    def chance(self) -> random.Random:
        """A random generator of the attack, independent of other attacks."""
        return random.Random(f"{self.seed} {self.kind} {self.number}")  # noqa: S311


def draw(seed: int, kinds: Mapping[str, object], count: int) -> list[Attack]:
    """Returns attacks of all kinds in an order that the seed determines.

    Args:
      seed: the seed of the order, and of the attacks' random choices.
    """
    chance, names = random.Random(seed), list[str]()  # noqa: S311 - a plan, no secret
    while kinds and len(names) < count:
        names += chance.sample(sorted(kinds), len(kinds))
    names = names[:count]
    return [Attack(kind, names[:index].count(kind), seed) for index, kind in enumerate(names)]


@dataclass(frozen=True)
class Fault:
    """An expectation that did not hold."""

    attack: Attack
    message: str

    def __str__(self) -> str:
        only = "" if self.attack.kind == WHOLE else f" --only {self.attack.kind}"
        command = f'make siege ARGS="--seed {self.attack.seed}{only}"'
        return f"{self.attack.kind} {self.attack.number}: {self.message} [{command}]"


@dataclass(frozen=True)
class AttackTime:
    """An attack, and its times by the monotonic clock."""

    attack: Attack
    began: float
    ended: float


class Siege:
    """A server, its clients, and the faults so far."""

    def __init__(self, server: Server, load: Load, store: Store, console: Console) -> None:
        self.server, self.load, self.store, self._console = server, load, store, console
        self.faults: list[Fault] = []
        self.played: list[AttackTime] = []
        self.deaths = 0
        """The number of exits of the server that no attack intended."""
        self._attack = Attack(WHOLE, 0, 0)
        self._tracebacks = 0

    def fault(self, message: str, attack: Attack | None = None) -> None:
        """Records a fault of the current attack or of another attack."""
        self.faults.append(Fault(attack or self._attack, message))
        self.say(f"    {self.faults[-1]}", "red")

    def say(self, line: str, style: str = "") -> None:
        """Prints a line of progress."""
        self._console.print(line, style=style, markup=False, highlight=False)

    @contextmanager
    def playing(self, attack: Attack) -> Iterator[None]:
        """Attributes the faults in the `with` block, including tracebacks in the log, to an
        attack.
        """
        self._attack, previous_faults, began = attack, len(self.faults), time.monotonic()
        yield
        self.check_alive()
        self.played.append(AttackTime(attack, began, time.monotonic()))
        tracebacks = self.server.tracebacks()
        if new := tracebacks[self._tracebacks :]:
            self._tracebacks = len(tracebacks)
            self.fault(f"{len(new)} tracebacks in the server's log: {new[-1][:200]}")
        result = "passed" if len(self.faults) == previous_faults else "FAILED"
        self.say(
            f"{len(self.played):>4}  {attack.kind} {attack.number}: {result},"
            f" {time.monotonic() - began:.1f} s"
        )

    def expect_no_switch(self) -> None:
        """Expects the expected version to answer all requests until the server has polled
        command.
        """
        since = time.monotonic()
        time.sleep(_POLL_SECONDS)
        requests = self.load.between(since, time.monotonic())
        versions = {r.version for r in requests if r.version is not None}
        if versions != {self.store.expected}:
            self.fault(f"expected version {self.store.expected}, but {sorted(versions)} answered")

    def expect_switch(self) -> None:
        """Expects the expected version to answer soon; if not, pushes a version for the next
        attacks.
        """
        if self.load.wait_for_version(self.store.expected, _SWITCH_SECONDS):
            return
        requests = self.load.completed[-100:]
        versions = [r.version for r in requests if r.version is not None]
        answered = f"version {versions[-1]}" if versions else "no version"
        self.fault(
            f"expected version {self.store.expected}, but {answered} answers after"
            f" {_SWITCH_SECONDS:.0f} s"
        )
        if not self.load.wait_for_version(self.store.push(), _SWITCH_SECONDS):
            self.fault(f"version {self.store.expected}, which was pushed next, does not answer")

    def longest_wait(self, since: float) -> float:
        """Waits until all clients get answers; returns the longest wait of a client in seconds."""
        end = time.monotonic()
        until = end + _ANSWER_SECONDS
        while not self.load.wait_for_all(end, _CHECK_SECONDS):
            self.check_alive()
            if time.monotonic() > until:
                self.fault(f"clients have no answer after {_ANSWER_SECONDS:.0f} s")
                break
        return longest(self.load.between(since, time.monotonic()))

    def check_alive(self) -> None:
        """Expects the server to run; if it does not, the method restarts it, as Kubernetes does."""
        if not self.server.is_alive:
            self.deaths += 1
            self.fault(f"the server died with exit code {self.server.process.returncode}")
            self.server.wait_ready()
