"""Runs the attacks one after the other, and checks the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tools.siege import hostile
from tools.siege.clients import LOST
from tools.siege.connection import ANSWER_SECONDS, SILENT
from tools.siege.hostile import Target, UnexpectedError
from tools.siege.load import CompletedRequest, is_correct, wait_until
from tools.siege.siege import WHOLE, Attack, Siege

_OK = 200
_SETTLE_SECONDS = 2.0
_MORE_MEGABYTES = 512
"""The maximum growth of the server's memory when kinds of hostile requests are repeated."""


@dataclass
class Statistics:
    """The statistics of hostile requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    longest_waits: dict[str, float] = field(default_factory=dict)
    """The longest wait of another client in seconds, by kind."""
    before: float = 0.0
    """The server's memory in megabytes before the attacks."""
    once: float = 0.0
    """The server's memory in megabytes after an attack of each kind.

    Libraries keep memory after their first use, so only later growth is a leak."""
    after: float = 0.0
    """The server's memory in megabytes after the attacks."""


def send_hostile(siege: Siege, attacks: Sequence[Attack], longest: float) -> Statistics:
    """Sends hostile requests, and checks the answers.

    Args:
      attacks: attacks of the kinds in `hostile`.
      longest: the maximum number of seconds that other clients may wait during an attack.
    """
    statistics, server = Statistics(before=siege.server.megabytes), siege.server.process
    with ThreadPoolExecutor(len(attacks) or 1) as pool:
        slow = [
            (attack, pool.submit(_send, siege, attack))
            for attack in attacks
            if hostile.KINDS[attack.kind].is_slow
        ]
        for attack in attacks:
            if attack.number and not statistics.once:
                statistics.once = siege.server.megabytes
            if not hostile.KINDS[attack.kind].is_slow:
                with siege.playing(attack):
                    _send_and_check(siege, attack, statistics, longest)
        for attack, future in slow:
            with siege.playing(attack):
                _record_answer(siege, attack, future.result(), statistics)
    time.sleep(_SETTLE_SECONDS)
    statistics.after = siege.server.megabytes
    statistics.once = statistics.once or statistics.after
    if siege.server.process is server and statistics.after > statistics.once + _MORE_MEGABYTES:
        message = (
            f"the server's memory is {statistics.after:.0f} MB, and was {statistics.once:.0f} MB"
            " after an attack of each kind"
        )
        siege.fault(message, Attack(WHOLE, 0, attacks[0].seed))
    return statistics


def _send(siege: Siege, attack: Attack) -> Sequence[int] | str:
    """Sends an attack; returns the statuses of the responses, or the description of an error."""
    target = Target(siege.server.port, siege.store.models.rows, attack.chance)
    try:
        return hostile.KINDS[attack.kind].attack(target)
    except (UnexpectedError, OSError) as error:
        return str(error)


def _record_answer(
    siege: Siege, attack: Attack, result: Sequence[int] | str, statistics: Statistics
) -> None:
    if isinstance(result, str):
        siege.fault(result)
        return
    statistics.statuses.update(result)
    if wrong := set(result) - {*hostile.KINDS[attack.kind].allowed}:
        names = ["no answer" if status == SILENT else str(status) for status in sorted(wrong)]
        siege.fault(f"the server answered with: {', '.join(names)}")


def _send_and_check(siege: Siege, attack: Attack, statistics: Statistics, longest: float) -> None:
    began, deaths = time.monotonic(), siege.deaths
    _record_answer(siege, attack, _send(siege, attack), statistics)
    siege.check_alive()
    longest_wait = siege.longest_wait(began)
    if siege.deaths == deaths:
        statistics.longest_waits[attack.kind] = max(
            statistics.longest_waits.get(attack.kind, 0.0), longest_wait
        )
        if longest_wait > longest:
            siege.fault(f"other clients waited {longest_wait:.1f} s")
    target = Target(siege.server.port, siege.store.models.rows, attack.chance)
    if not wait_until(lambda: target.predict(target.row.rest_body()) == _OK, ANSWER_SECONDS):
        siege.fault("after the attack, a good request over a new connection is not answered")


def play(siege: Siege, attacks: Sequence[Attack], kinds: Mapping[str, Callable[..., None]]) -> None:
    """Runs kills, or attacks with damaged versions."""
    for attack in attacks:
        with siege.playing(attack):
            kinds[attack.kind](siege, attack.chance)


def check_load(siege: Siege, seed: int) -> Counter[str]:
    """Records faults for requests of well-behaved clients that were lost or answered wrongly.

    Returns:
      The numbers of right, wrong and lost requests.
    """
    counts: Counter[str] = Counter(right=0, wrong=0, lost=0)
    faulty: dict[tuple[Attack, str], list[CompletedRequest]] = {}
    for request in siege.load.completed:
        right = is_correct(request, siege.store.marks)
        outcome = "right" if right else "lost" if request.mark == LOST else "wrong"
        counts[outcome] += 1
        if not right:
            faulty.setdefault((_attack_during(siege, request, seed), outcome), []).append(request)
    for (attack, outcome), requests in faulty.items():
        first = requests[0]
        tries = ", ".join(Counter(first.troubles))
        siege.fault(
            f"{len(requests)} requests of well-behaved clients were {outcome}, the first after"
            f" {first.seconds:.1f} s ({tries}), by version {first.version} as {first.mark}",
            attack,
        )
    return counts


def _attack_during(siege: Siege, request: CompletedRequest, seed: int) -> Attack:
    """Returns the attack that was in progress when a request was answered or lost."""
    at = request.began + request.seconds
    attacks = (played.attack for played in siege.played if played.began <= at <= played.ended)
    return next(attacks, Attack(WHOLE, 0, seed))
