"""The time left, by the pace so far."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence

import pytest

from pipeline.runs import pace
from pipeline.runs.console import RunConsole
from pipeline.runs.pace import Pace
from trainer_module.runtime import ABOUT

Figure = tuple[float, float | None, float | None]
"""The second, the finished units, and the number of all units."""


@pytest.mark.parametrize(
    ("figures", "shown"),
    [
        ([(0, 0, 100), (9, 9, 100), (10, 9, 100)], ["", "", "about 2 min left"]),
        ([(0, 0, 100), (2, 20, 100), (4, 40, 100)], ["", "about 10 s left", "about 10 s left"]),
        ([(0, 0, 100), (100, 1, 100)], ["", "about 2 h 45 min left"]),
        (
            [(0, 0, 9), (8, 8, 9), (9, 1, 9), (11, 3, 9)],
            ["", "about 5 s left", "", "about 10 s left"],
        ),
    ],
    ids=[
        "too little work, unless it takes long",
        "steady",
        "hours",
        "other work of the same size",
    ],
)
def test_time_left(
    figures: Sequence[Figure], shown: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tested, found = Pace(), []
    for second, done, total in figures:
        monkeypatch.setattr(pace.time, "monotonic", lambda second=second: second)
        found.append(tested.time_left(done, total, ABOUT))
    assert found == list(shown)


def test_a_log_has_the_time_left_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(pace.time, "monotonic", lambda: 0)
    console = RunConsole(stream)
    console.started("Transform")
    for second, rows in ((0, 0), (10, 10), (30, 30), (40, 40)):
        monkeypatch.setattr(pace.time, "monotonic", lambda second=second: second)
        fields = {"msg": f"{rows} of 90 rows read", "done": rows, "total": 90, "left": ABOUT}
        console.emit(logging.makeLogRecord(fields))
    assert stream.getvalue() == "  Transform         30 of 90 rows read, about 1 min left\n"
