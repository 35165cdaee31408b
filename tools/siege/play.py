"""Runs attacks of each sort, one after the other, and checks the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tools.siege import hostile
from tools.siege.clients import LOST
from tools.siege.connection import ANSWER_SECONDS, SILENT
from tools.siege.hostile import Front, UnexpectedError
from tools.siege.load import CompletedRequest, is_right, wait_until
from tools.siege.siege import WHOLE, Attack, Siege

_OK = 200
_SETTLE_SECONDS = 2.0
_MORE_MEGABYTES = 512
"""The memory that the server may keep after repeated kinds of hostile requests; more is a leak."""


@dataclass
class Found:
    """The statistics of hostile requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    longest_waits: dict[str, float] = field(default_factory=dict)
    """The longest wait of another client in seconds, by kind."""
    before: float = 0.0
    """The server's memory in megabytes before the attacks."""
    once: float = 0.0
    """The server's memory after an attack of each kind, as libraries keep memory after the first.
    """
    after: float = 0.0


def send_hostile(siege: Siege, attacks: Sequence[Attack], longest: float) -> Found:
    """Sends hostile requests, and checks the answers.

    Args:
      siege: the siege in progress.
      attacks: attacks of the kinds in `hostile`.
      longest: the most seconds that other clients may wait meanwhile.
    """
    found, server = Found(before=siege.server.megabytes), siege.server.process
    with ThreadPoolExecutor(len(attacks) or 1) as pool:
        slow = [
            (attack, pool.submit(_send, siege, attack))
            for attack in attacks
            if hostile.KINDS[attack.kind].is_slow
        ]
        for attack in attacks:
            if attack.number and not found.once:
                found.once = siege.server.megabytes
            if not hostile.KINDS[attack.kind].is_slow:
                with siege.playing(attack):
                    _play_one(siege, attack, found, longest)
        for attack, future in slow:
            with siege.playing(attack):
                _record_answer(siege, attack, future.result(), found)
    time.sleep(_SETTLE_SECONDS)
    found.after = siege.server.megabytes
    found.once = found.once or found.after
    if siege.server.process is server and found.after > found.once + _MORE_MEGABYTES:
        said = f"the server has {found.after:.0f} MB, and had {found.once:.0f} after one of each"
        siege.fault(said, Attack(WHOLE, 0, attacks[0].seed))
    return found


def _send(siege: Siege, attack: Attack) -> Sequence[int] | str:
    """Sends an attack; returns the statuses of the responses, or the description of a wrong one."""
    front = Front(siege.server.port, siege.store.models.rows, attack.chance)
    try:
        return hostile.KINDS[attack.kind].attack(front)
    except (UnexpectedError, OSError) as error:
        return str(error)


def _record_answer(siege: Siege, attack: Attack, said: Sequence[int] | str, found: Found) -> None:
    if isinstance(said, str):
        siege.fault(said)
        return
    found.statuses.update(said)
    if wrong := set(said) - {*hostile.KINDS[attack.kind].allowed}:
        names = ["no answer" if status == SILENT else str(status) for status in sorted(wrong)]
        siege.fault(f"answered by {', '.join(names)}")


def _play_one(siege: Siege, attack: Attack, found: Found, longest: float) -> None:
    began, deaths = time.monotonic(), siege.deaths
    _record_answer(siege, attack, _send(siege, attack), found)
    siege.check_alive()
    longest_wait = siege.longest_wait(began)
    if siege.deaths == deaths:
        found.longest_waits[attack.kind] = max(
            found.longest_waits.get(attack.kind, 0.0), longest_wait
        )
        if longest_wait > longest:
            siege.fault(f"other clients waited {longest_wait:.1f} s")
    front = Front(siege.server.port, siege.store.models.rows, attack.chance)
    if not wait_until(lambda: front.predict(front.row.rest()) == _OK, ANSWER_SECONDS):
        siege.fault("a good request by a new connection is not answered afterwards")


def play(siege: Siege, attacks: Sequence[Attack], kinds: Mapping[str, Callable[..., None]]) -> None:
    """Runs kills, or damaged versions."""
    for attack in attacks:
        with siege.playing(attack):
            kinds[attack.kind](siege, attack.chance)


def check_load(siege: Siege, seed: int) -> Counter[str]:
    """Records a fault for well-behaved requests that were lost or answered wrongly.

    Returns:
      The numbers of right, wrong and lost requests.
    """
    counts: Counter[str] = Counter(right=0, wrong=0, lost=0)
    found: dict[tuple[Attack, str], list[CompletedRequest]] = {}
    for asked in siege.load.all:
        right = is_right(asked, siege.store.marks)
        what = "right" if right else "lost" if asked.mark == LOST else "wrong"
        counts[what] += 1
        if not right:
            found.setdefault((_during(siege, asked, seed), what), []).append(asked)
    for (attack, what), all_of_it in found.items():
        one = all_of_it[0]
        tries = ", ".join(Counter(one.troubles))
        siege.fault(
            f"{len(all_of_it)} requests of well-behaved clients were {what}, the first after"
            f" {one.seconds:.1f} s ({tries}), by version {one.version} as {one.mark}",
            attack,
        )
    return counts


def _during(siege: Siege, asked: CompletedRequest, seed: int) -> Attack:
    """Returns the attack that was in progress when a request was answered or given up."""
    at = asked.began + asked.seconds
    found = (one.attack for one in siege.played if one.began <= at <= one.ended)
    return next(found, Attack(WHOLE, 0, seed))
