"""Kills and stops of the server's processes: a function for each kind."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from tools.siege.hostile import post
from tools.siege.load import wait_until
from tools.siege.siege import Siege
from tools.siege.wire import Wire

WORKERS = 2
_OK = 200
_ANSWER_SECONDS = 30.0
_GONE_SECONDS = 10.0

Kill = Callable[[Siege, random.Random], None]
KINDS: dict[str, Kill] = {}


def kill(kind: Kill) -> Kill:
    """Registers a kind."""
    KINDS[kind.__name__] = kind
    return kind


def _comes(siege: Siege) -> None:
    """Expects that all workers are ready again, and answer by the right version."""
    if not siege.server.wait_ready():
        siege.fault("the server does not come to be ready again")
    siege.comes()


def _kill_worker(siege: Siege, chance: random.Random) -> None:
    workers = siege.server.worker_processes()
    if not workers:
        siege.fault("no worker runs")
    else:
        victim = chance.choice(sorted(workers, key=lambda one: one.pid))
        with suppress(psutil.NoSuchProcess):
            victim.kill()
            victim.wait(_GONE_SECONDS)


@kill
def worker(siege: Siege, chance: random.Random) -> None:
    """SIGKILL of a worker."""
    _kill_worker(siege, chance)
    _comes(siege)


@kill
def worker_while_a_version_comes(siege: Siege, chance: random.Random) -> None:
    """SIGKILL of a worker at a moment after a push."""
    siege.store.push()
    time.sleep(chance.uniform(0, 2))
    _kill_worker(siege, chance)
    _comes(siege)


@kill
def worker_after_worker(siege: Siege, chance: random.Random) -> None:
    """SIGKILL of a worker, and of the next one before the first is back."""
    for _ in range(WORKERS):
        _kill_worker(siege, chance)
        time.sleep(chance.uniform(0, 1))
    _comes(siege)


@kill
def supervisor(siege: Siege, chance: random.Random) -> None:
    """SIGKILL of the process that starts the workers, which end by themselves."""
    workers = siege.server.worker_processes()
    siege.server.kill()
    if not wait_until(lambda: not {*workers} & {*siege.server.processes}, _ANSWER_SECONDS):
        siege.fault("workers go on without the process that has started them")
    siege.server.start()
    _comes(siege)


@kill
def all_at_once(siege: Siege, chance: random.Random) -> None:
    """SIGKILL of all processes, as of a container."""
    for process in siege.server.processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    siege.server.kill()
    siege.server.start()
    _comes(siege)


@kill
def stop(siege: Siege, chance: random.Random) -> None:
    """SIGTERM while a request has come by half: it is answered, and the exit code is 0."""
    body = post(chance.choice(siege.store.models.rows).rest(), ("Expect", "100-continue"))
    end = body.index(b"\r\n\r\n") + 4
    with Wire(siege.server.port) as wire:
        wire.send(body[:end])
        time.sleep(0.2)
        siege.server.process.terminate()
        time.sleep(chance.uniform(0.1, 1))
        wire.send(body[end:])
        statuses = wire.statuses(1, _ANSWER_SECONDS)
    if statuses != [_OK]:
        siege.fault(f"a request that had come by half before SIGTERM was answered {statuses}")
    _end(siege)


@kill
def stop_of_a_start(siege: Siege, chance: random.Random) -> None:
    """SIGTERM at a moment at which the server starts, by one process or several."""
    siege.server.stop()
    siege.server.workers = chance.choice([1, WORKERS])
    siege.server.start()
    time.sleep(chance.uniform(1, 4))  # Python itself has to be there, which knows of no stop.
    siege.server.workers = WORKERS
    _end(siege)


def _end(siege: Siege) -> None:
    code = siege.server.stop()
    if code != 0:
        siege.fault(f"SIGTERM ended the server with {code}, not 0")
    siege.server.start()
    _comes(siege)
