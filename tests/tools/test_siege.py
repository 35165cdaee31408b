"""A short `make siege`: the server withstands attacks, kills and damaged versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.console import Console

from tests.support import warm
from tools.siege import kills, versions
from tools.siege.__main__ import start_siege
from tools.siege.models import make_models
from tools.siege.play import check_load, play, send_hostile
from tools.siege.siege import Attack, Siege

pytestmark = pytest.mark.slow

SEED = 7
PATIENCE = 30.0
"""Seconds that a client may wait while other tests use the cores."""
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


def test_no_request_is_lost_and_the_right_version_answers(siege: Siege) -> None:
    found = send_hostile(siege, attacks(*HOSTILE), PATIENCE)
    play(siege, attacks("flipped_byte", "rolled_back_from_a_damaged_version"), versions.KINDS)
    play(siege, attacks("worker_while_a_version_comes"), kills.KINDS)
    counts = check_load(siege, SEED)
    assert not siege.faults, siege.faults
    assert counts["right"] > 100
    assert (counts["wrong"], counts["lost"]) == (0, 0)
    assert sum(found.statuses.values()) >= len(HOSTILE) - 3
    assert len({version for *_, version, _, _ in siege.load.completed}) > 3
