"""A short `make siege`: what it expects holds, and it finds what does not."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from tests.support import warm
from tools.siege import hostile, kills, versions
from tools.siege.__main__ import Plan, start_siege
from tools.siege.confined import limit_memory
from tools.siege.connection import SILENT
from tools.siege.models import make_models
from tools.siege.play import check_load, play, send_hostile
from tools.siege.siege import Attack, Siege, draw

pytestmark = pytest.mark.slow

SEED = 7
PATIENCE = 30.0
"""Seconds that a client may wait here: other tests have the cores as well."""
HOSTILE = (
    *("bad_chunks", "damaged_pictures_in_batches", "garbage_behind_good_requests", "huge_head"),
    *(
        "gzip_of_empty_rows",
        "huge_picture",
        "huge_picture_as_example",
        "lying_length",
        "never_read",
    ),
    *("lying_picture", "many_connections", "no_http", "vanishing_clients", "wrong_key"),
)


def attacks(*kinds: str) -> list[Attack]:
    return [Attack(kind, 0, SEED) for kind in kinds]


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    folder = tmp_path_factory.mktemp("siege")
    models = make_models(folder, warm.Popen, {"A": 1})
    with start_siege(models, folder, Console(quiet=True), kills.WORKERS) as (siege, _):
        siege.expect_switch()
        yield siege
    assert not siege.server.processes


@pytest.mark.slow
def test_nothing_is_lost_and_the_right_version_answers(siege: Siege) -> None:
    found = send_hostile(siege, attacks(*HOSTILE), PATIENCE)
    play(siege, attacks("flipped_byte", "rolled_back_from_a_damaged_version"), versions.KINDS)
    play(siege, attacks("worker_while_a_version_comes"), kills.KINDS)
    counts = check_load(siege, SEED)
    assert not siege.faults, siege.faults
    assert counts["right"] > 100
    assert (counts["wrong"], counts["lost"]) == (0, 0)
    assert sum(found.statuses.values()) >= len(HOSTILE) - 3
    assert len({version for *_, version, _, _ in siege.load.completed}) > 3


@pytest.mark.slow
def test_what_does_not_hold_is_found(siege: Siege, monkeypatch: pytest.MonkeyPatch) -> None:
    siege.faults.clear()

    def answered_wrongly(target: hostile.Target) -> list[int]:
        siege.server.log.open("a").write(
            '{"traceback": "Traceback (most recent call last):\\nE: x"}'
        )
        return [500, SILENT, 200]

    monkeypatch.setitem(hostile.KINDS, "bad_chunks", hostile.Kind(answered_wrongly))
    send_hostile(siege, attacks("bad_chunks"), longest=0.0)
    siege.store.marks[siege.store.expected] = None
    check_load(siege, SEED)
    said = [fault.message.split(",")[0] for fault in siege.faults]
    assert said[0] == "the server answered with: no answer"
    assert "other clients waited" in said[1]
    assert "tracebacks in the server's log" in said[2]
    assert "requests of well-behaved clients were wrong" in said[3]
    assert "--seed 7 --only bad_chunks" in str(siege.faults[0])
    siege.faults.clear()


def test_server_is_under_the_limit(tmp_path: Path) -> None:
    with limit_memory(100) as limit:
        program = ["-c", "import mmap; mmap.mmap(-1, 300 << 20).write(b'x' * (300 << 20))"]
        command = limit.command([psutil.Process().exe(), *program])
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode != 0
        assert limit.kills == (0 if limit.cgroup is None else 1)
    assert limit.cgroup is None or not limit.cgroup.exists()


def test_a_seed_says_what_is_played() -> None:
    assert draw(5, hostile.KINDS, 200) == draw(5, hostile.KINDS, 200)
    assert draw(5, hostile.KINDS, 200) != draw(6, hostile.KINDS, 200)
    whole, part = (Plan.of(1, (200, 20, 20), only) for only in (None, "huge_picture"))
    assert {attack.kind for attack in whole.hostile} == set(hostile.KINDS)
    assert {attack.kind for attack in whole.versions} == set(versions.KINDS)
    assert {attack.kind for attack in whole.kills} == set(kills.KINDS)
    assert part.hostile == [one for one in whole.hostile if one.kind == "huge_picture"]
    assert not part.kills
    assert part.hostile[0].chance.random() == part.hostile[0].chance.random()
