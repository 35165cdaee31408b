"""Kills and stops of the server's processes: a function per kind."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from tools.siege.connection import Connection
from tools.siege.hostile import post
from tools.siege.load import wait_until
from tools.siege.siege import Siege

WORKERS = 2
_OK = 200
_ANSWER_SECONDS = 30.0
_GONE_SECONDS = 10.0

Kill = Callable[[Siege, random.Random], None]
KINDS: dict[str, Kill] = {}


def kill(kind: Kill) -> Kill:
    """Registers a kind of kill."""
    KINDS[kind.__name__] = kind
    return kind


def _expect_recovery(siege: Siege) -> None:
    """Expects all workers to become ready, and to serve the expected version."""
    if not siege.server.wait_ready():
        siege.fault("the server does not become ready after the attack")
    siege.expect_switch()


def _kill_worker(siege: Siege, chance: random.Random) -> None:
    workers = siege.server.worker_processes()
    if not workers:
        siege.fault("no worker runs")
    else:
        victim = chance.choice(sorted(workers, key=lambda process: process.pid))
        with suppress(psutil.NoSuchProcess):
            victim.kill()
            victim.wait(_GONE_SECONDS)


@kill
def worker(siege: Siege, chance: random.Random) -> None:
    """Sends SIGKILL to a worker."""
    _kill_worker(siege, chance)
    _expect_recovery(siege)


@kill
def worker_while_a_version_comes(siege: Siege, chance: random.Random) -> None:
    """Sends SIGKILL to a worker shortly after a push."""
    siege.store.push()
    time.sleep(chance.uniform(0, 2))
    _kill_worker(siege, chance)
    _expect_recovery(siege)


@kill
def worker_after_worker(siege: Siege, chance: random.Random) -> None:
    """Sends SIGKILL to a worker, and to the next worker before the first has restarted."""
    for _ in range(WORKERS):
        _kill_worker(siege, chance)
        time.sleep(chance.uniform(0, 1))
    _expect_recovery(siege)


@kill
def supervisor(siege: Siege, chance: random.Random) -> None:
    """Sends SIGKILL to the parent of the workers, and expects the workers to exit."""
    workers = siege.server.worker_processes()
    siege.server.kill()
    if not wait_until(lambda: not {*workers} & {*siege.server.processes}, _ANSWER_SECONDS):
        siege.fault("workers continue to run after the end of their parent process")
    siege.server.start()
    _expect_recovery(siege)


@kill
def all_at_once(siege: Siege, chance: random.Random) -> None:
    """Sends SIGKILL to all processes, like the end of a container."""
    for process in siege.server.processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    siege.server.kill()
    siege.server.start()
    _expect_recovery(siege)


@kill
def stop(siege: Siege, chance: random.Random) -> None:
    """Sends SIGTERM in the middle of a request; expects an answer to the request and exit
    code 0.
    """
    body = post(chance.choice(siege.store.models.rows).rest_body(), ("Expect", "100-continue"))
    end = body.index(b"\r\n\r\n") + 4
    with Connection(siege.server.port) as connection:
        connection.send(body[:end])
        time.sleep(0.2)
        siege.server.process.terminate()
        time.sleep(chance.uniform(0.1, 1))
        connection.send(body[end:])
        statuses = connection.statuses(1, _ANSWER_SECONDS)
    if statuses != [_OK]:
        siege.fault(f"SIGTERM arrived in the middle of a request, whose status was {statuses}")
    _end(siege)


@kill
def stop_of_a_start(siege: Siege, chance: random.Random) -> None:
    """Sends SIGTERM while the server starts, with one process or several."""
    siege.server.stop()
    siege.server.workers = chance.choice([1, WORKERS])
    siege.server.start()
    time.sleep(chance.uniform(1, 4))  # Python can handle signals only after its start.
    siege.server.workers = WORKERS
    _end(siege)


def _end(siege: Siege) -> None:
    code = siege.server.stop()
    if code != 0:
        siege.fault(f"the exit code of the server after SIGTERM was {code}, expected 0")
    siege.server.start()
    _expect_recovery(siege)
