"""What became of every span, those that hold no row, and those that drifted and are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.data.spans import Span
from pipeline.records.data_records import SpanRecords
from pipeline.records.event_log import EventKind
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import Status
from pipeline.schedule.decision import Due, NotDue
from pipeline.schedule.span_states import ListedSpan, accept_span, list_states
from tests.support.scheduled_days import ROWS, Days, at, day_number
from trainer_module.errors import ConfigError

DRIFTED = "the data drifted: train split, a: expected little; found 0.3 compared with span 3"
HEADER = ROWS.splitlines()[0] + "\n"


@pytest.fixture
def days(tmp_path: Path) -> Days:
    """Days 1 to 3 have been trained on as they came; the fourth was refused as it had drifted."""
    drift = {"columns": {"a": {"jensen_shannon": 0.1}}, "on_drift": "fail"}
    schedule = {"on_new_data": True, "window": {"last": 3}, "missing_span": "skip"}
    days = Days(tmp_path, schedule, drift=drift)
    for day in (1, 2, 3):
        days.deliver(day)
        days.check(at(day + 1))
        days.run(at(day + 1))
    days.deliver(4)
    days.check(at(5))
    refuse(days, days.begin(at(5)), 4)
    return days


def span(days: Days, day: int) -> Span:
    (found,) = (one.span for one in listed(days) if one.span.number == day_number(day))
    return found


def listed(days: Days) -> list[ListedSpan]:
    return list_states(days.config, days.layout, days.event_log, at(9, 12))


def states(days: Days) -> dict[int, str]:
    """By day of January."""
    return {one.span.number - day_number(0): one.state.value for one in listed(days)}


def refuse(days: Days, run_events: RunEvents, day: int, has_drifted: bool = True) -> None:
    message = DRIFTED if has_drifted else "the data contradicts the schema: a: nonsense."
    run_events.record_refusal(span(days, day), message, "", has_drifted)
    days.end(run_events, Status.UNUSABLE)


def accept(days: Days, day: str, reason: str = "new prices") -> str:
    return accept_span(days.config, days.layout, days.event_log, day, reason)


def test_every_span_has_a_state(days: Days) -> None:
    days.deliver(5, rows=HEADER)
    days.deliver(6)
    days.deliver(7, arrives=at(9, 12))
    days.deliver(-3, arrives=at(3))
    days.deliver(-2, arrives=at(9))
    assert states(days) == {
        -3: "before the window",
        -2: "late",
        1: "trained on",
        2: "trained on",
        3: "trained on",
        4: "left out",
        5: "empty",
        6: "not read yet",
        7: "unstable",
    }
    by_name = {one.span.name: one for one in listed(days)}
    assert "changed less than 1m ago" in by_name["2026-01-07"].reason
    assert by_name["2026-01-04"].reason == DRIFTED
    assert by_name["2026-01-03"].rows == 2
    assert by_name["2026-01-03"].read is not None


def test_drift_is_measured_from_the_last_span_that_passed(days: Days) -> None:
    def compared(day: int) -> int | None:
        on_drift = days.config.drift.on_drift
        return SpanRecords(days.event_log).compared_with(day_number(day), on_drift)

    assert compared(1) is None
    assert compared(5) == day_number(3)
    days.deliver(5)
    days.change({"drift": days.raw["drift"] | {"on_drift": "warn"}})
    days.run(at(6), drift=["it has drifted"])
    assert compared(6) == day_number(3), "not from the one that drifted, though it was trained on"
    days.deliver(5, rows="a,label\n7,1\n")
    days.run(at(6, 5))
    assert compared(6) == day_number(5), "the corrected one has passed"
    days.change({"drift": days.raw["drift"] | {"on_drift": "retrain"}})
    days.deliver(6)
    days.run(at(7), drift=["it has drifted"])
    assert compared(7) == day_number(6), "a run was the answer to the drift"


def test_an_accepted_span_is_due_and_later_ones_are_compared_with_it(days: Days) -> None:
    assert isinstance(days.check(at(5, 4)), NotDue)
    assert "the next run whose window contains the span trains on the span" in accept(
        days, "2026-01-04"
    )
    (event,) = days.events(EventKind.SPAN_ACCEPTED)
    assert (event.message, event.details["reason"]) == (
        "span 2026-01-04: new prices",
        "new prices",
    )
    assert states(days)[4] == "accepted"
    assert accept(days, "2026-01-04") == "span 2026-01-04 was accepted already: new prices"
    due = days.check(at(5, 5))
    assert isinstance(due, Due)
    days.run(at(5, 5))
    assert states(days)[4] == "trained on"
    assert isinstance(days.check(at(5, 6)), NotDue)
    on_drift = days.config.drift.on_drift
    records = SpanRecords(days.event_log)
    assert records.compared_with(day_number(5), on_drift) == day_number(4)
    # The same content is accepted, other content is not.
    days.deliver(4, arrives=at(5, 7))
    assert records.acceptance(span(days, 4))
    days.deliver(4, rows="a,label\n7,1\n", arrives=at(5, 7))
    assert not records.acceptance(span(days, 4))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("4", "4: each span at data.path is a date, such as 2026-01-05"),
        ("2026-02-04", "there is no such span at data.path; there are 2026-01-01 to 2026-01-05"),
        (
            "2026-01-03",
            ("span 2026-01-03: no run has found drift in this span, so there is nothing to accept"),
        ),
        ("2026-01-05", "This is not drift: deliver the span again, or"),
    ],
)
def test_span_that_cannot_be_accepted(days: Days, name: str, words: str) -> None:
    days.deliver(5)
    refuse(days, days.begin(at(6)), 5, has_drifted=False)
    with pytest.raises(ConfigError) as caught:
        accept(days, name)
    assert words in str(caught.value)
    assert not days.events(EventKind.SPAN_ACCEPTED)
