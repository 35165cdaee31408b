"""Which spans there are, and the window of them that a run trains on."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.sections.data import DataSettings, SpanKind, has_spans
from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import list_files, locate_data
from pipeline.data.spans import Span, Window, choose_window, list_spans, whole_data
from pipeline.layout import Layout
from pipeline.run_context import RunRequest, resolve_run
from trainer_module.errors import ConfigError, DataError

NOW = datetime(2026, 1, 20, 12, tzinfo=UTC)
DAY_1 = 20454
"""The 1st of January 2026."""


def write(path: Path, rows: str = "a\n1\n", age: timedelta = timedelta(hours=1)) -> Path:
    """A file that was written some time ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rows)
    moment = (NOW - age).timestamp()
    os.utime(path, (moment, moment))
    return path


def settings_of(path: str, **others: Any) -> DataSettings:
    return DataSettings.model_validate({"format": "csv", "path": path, **others})


def spans_at(folder: Path, pattern: str, **others: Any) -> list[Span]:
    data = settings_of(f"{folder}/{pattern}", **others)
    return list_spans(data, locate_data(data, Layout(folder / "out", "x")))


def days(folder: Path, *numbers: int) -> list[Span]:
    for number in numbers:
        write(folder / f"2026-01-{number:02d}" / "t.csv")
    return spans_at(folder, "{YYYY}-{MM}-{DD}/*.csv")


def window(spans: list[Span], through: int | None = None, **schedule: Any) -> Window:
    data = settings_of("{SPAN}")
    return choose_window(spans, data, ScheduleSettings.model_validate(schedule), NOW, through)


def offsets(chosen: Window) -> list[int]:
    """The days of January of a window."""
    return [number - DAY_1 + 1 for number in chosen.numbers]


def test_dates_are_days_since_1970_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    spans = days(tmp_path, 3, 1, 2)
    assert [span.number for span in spans] == [DAY_1, DAY_1 + 1, DAY_1 + 2]
    assert [str(span) for span in spans] == ["2026-01-01", "2026-01-02", "2026-01-03"]


def test_numbers_are_not_sorted_as_text(tmp_path: Path) -> None:
    for number in ("9", "10", "2"):
        write(tmp_path / f"span-{number}" / "a.csv")
    write(tmp_path / "span-x" / "a.csv")
    assert [span.number for span in spans_at(tmp_path, "span-{SPAN}/*.csv")] == [2, 9, 10]


def test_latest_version_counts(tmp_path: Path) -> None:
    for version in ("1", "2", "10"):
        write(tmp_path / "7" / f"v{version}" / "a.csv", f"a\n{version}\n")
    (span,) = spans_at(tmp_path, "{SPAN}/v{VERSION}/*.csv")
    assert (span.number, span.version, str(span)) == (7, 10, "7 version 10")
    assert [Path(file.path).parent.name for file in span.files] == ["v10"]


def test_hidden_files_and_other_names_are_no_data(tmp_path: Path) -> None:
    write(tmp_path / "1" / "a.csv")
    for name in (".b.csv", "_SUCCESS.csv", "readme.txt"):
        write(tmp_path / "1" / name)
    write(tmp_path / "2" / ".a.csv")
    (span,) = spans_at(tmp_path, "{SPAN}/*.csv")
    assert [Path(file.path).name for file in span.files] == ["a.csv"]


def test_file_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.csv")).write_text("")
    with pytest.raises(DataError, match=r"a\\udcff.csv' is not UTF-8; rename the file"):
        list_files(str(tmp_path), "*.csv")


def test_span_needs_a_file_in_every_input_split(tmp_path: Path) -> None:
    splits = {"train": "{SPAN}/train/*.csv", "eval": "{SPAN}/eval/*.csv"}
    write(tmp_path / "1" / "train" / "a.csv")
    write(tmp_path / "1" / "eval" / "a.csv")
    write(tmp_path / "2" / "train" / "a.csv")
    data = settings_of(str(tmp_path), splits=splits)
    assert has_spans(data)
    assert [
        span.number for span in list_spans(data, locate_data(data, Layout(tmp_path / "out", "x")))
    ] == [1]


def test_signature_and_digest_tell_a_second_delivery_from_other_content(tmp_path: Path) -> None:
    path = tmp_path / "1" / "a.csv"

    def state() -> tuple[str, str]:
        (span,) = spans_at(tmp_path, "{SPAN}/*.csv")
        return span.signature, span.digest()

    write(path)
    first = state()
    assert state() == first
    write(path, age=timedelta(minutes=30))
    again = state()
    assert again[0] != first[0]
    assert again[1] == first[1]
    write(path, "a\n2\n", age=timedelta(minutes=30))
    assert state()[1] != first[1]
    write(path)
    write(tmp_path / "1" / "b.csv")
    assert state()[1] != first[1]


def test_path_without_spans_is_refused_and_counts_as_one(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"contains neither \{SPAN\} nor \{YYYY\}-\{MM\}-\{DD\}"):
        spans_at(tmp_path, "*.csv")
    data = settings_of(f"{tmp_path}/*.csv")
    assert not has_spans(data)
    assert len(whole_data(locate_data(data, Layout(tmp_path / "out", "x")), data).files) == 1


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"last": 1}, [5]),
        ({"last": 3}, [3, 4, 5]),
        ({"last": 99}, [1, 2, 3, 4, 5]),
        ({"all": True}, [1, 2, 3, 4, 5]),
        ({"since": "2026-01-04"}, [4, 5]),
        ({"since": "2025-06-01"}, [1, 2, 3, 4, 5]),
        ({"since": DAY_1 + 3}, [4, 5]),
    ],
)
def test_windows(tmp_path: Path, chosen: dict[str, Any], expected: list[int]) -> None:
    spans = days(tmp_path, 1, 2, 3, 4, 5)
    assert offsets(window(spans, window=chosen)) == expected


def test_window_is_shown_in_words(tmp_path: Path) -> None:
    spans = days(tmp_path, 1, 2, 3)
    assert str(window(spans, window={"last": 2})) == "2 spans, 2026-01-02 to 2026-01-03"
    assert str(window(spans)) == "span 2026-01-03"


def test_window_ends_at_the_span_that_is_asked_for(tmp_path: Path) -> None:
    spans = days(tmp_path, 1, 2, 3, 4)
    assert offsets(window(spans, DAY_1 + 2, window={"last": 2})) == [2, 3]
    with pytest.raises(DataError, match="there is no span 20490 to train on"):
        window(spans, 20490)


def test_gap_fails_or_is_skipped(tmp_path: Path) -> None:
    spans = days(tmp_path, 1, 2, 5)
    with pytest.raises(DataError) as caught:
        window(spans, window={"last": 5})
    assert str(caught.value) == (
        "data.path: the window lacks span 2026-01-03, 2026-01-04, or its files are empty; add the "
        "files, or set schedule.missing_span: skip to train without these spans"
    )
    skipped = window(spans, window={"last": 5}, missing_span="skip")
    assert offsets(skipped) == [1, 2, 5]
    assert skipped.notes == ("the window lacks span 2026-01-03, 2026-01-04",)
    late = days(tmp_path, 3, 4)
    assert offsets(window(late, window={"last": 5})) == [1, 2, 3, 4, 5]


def test_days_before_the_first_are_no_gap(tmp_path: Path) -> None:
    assert offsets(window(days(tmp_path, 4, 5), window={"last": 7})) == [4, 5]


def test_empty_span_waits_or_is_a_gap(tmp_path: Path) -> None:
    days(tmp_path, 1, 2, 3)
    write(tmp_path / "2026-01-02" / "t.csv", "")
    write(tmp_path / "2026-01-04" / "t.csv", "")
    spans = days(tmp_path)
    with pytest.raises(DataError, match="lacks span 2026-01-02, or its files are empty"):
        window(spans, window={"last": 3})
    skipped = window(spans, window={"last": 3}, missing_span="skip")
    assert offsets(skipped) == [1, 3]
    assert skipped.notes[0] == "span 2026-01-04 is empty; it is not read yet"


def test_span_that_is_being_written_waits(tmp_path: Path) -> None:
    days(tmp_path, 1, 2)
    write(tmp_path / "2026-01-03" / "t.csv", age=timedelta(seconds=30))
    chosen = window(days(tmp_path))
    assert offsets(chosen) == [2]
    why = "still being written (schedule.settle: files changed less than 1m ago)"
    assert chosen.notes == (f"span 2026-01-03 is {why}; it is not read yet",)
    assert offsets(window(days(tmp_path), settle="10s")) == [3]
    write(tmp_path / "2026-01-01" / "more.csv", age=timedelta(seconds=30))
    with pytest.raises(DataError, match="in the window, span 2026-01-01 is still being written"):
        window(days(tmp_path), window={"all": True})


def test_several_spans_that_wait_are_one_note(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write(tmp_path / f"2026-01-0{day}" / "t.csv", age=timedelta(seconds=30))
    with pytest.raises(DataError) as caught:
        window(days(tmp_path))
    assert str(caught.value) == (
        "data.path: there is no span to train on; span 2026-01-03 is still being written "
        "(schedule.settle: files changed less than 1m ago); it is not read yet; the same "
        "reason applies to 2 earlier spans, from 2026-01-01 on"
    )
    for day in (2, 3):
        write(tmp_path / f"2026-01-0{day}" / "t.csv", "")
    days(tmp_path, 1)
    chosen = window(days(tmp_path))
    assert (offsets(chosen), [str(span) for span in chosen.empty]) == (
        [1],
        ["2026-01-02", "2026-01-03"],
    )
    assert chosen.notes == (
        "span 2026-01-03 is empty; it is not read yet; the same reason applies to 1 earlier span, "
        "from 2026-01-02 on",
    )


def test_spans_that_nobody_chose_to_leave_out_are_said(tmp_path: Path) -> None:
    days(tmp_path, *range(1, 6))
    layout = Layout(tmp_path / "out", "x")

    def notes(schedule: dict[str, Any] | None, through: str | None = None) -> tuple[str, ...]:
        text = {
            "name": "x",
            "data": {"format": "csv", "path": f"{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}/*.csv"},
            "task": "binary",
        }
        config = PipelineConfig.model_validate(text | ({"schedule": schedule} if schedule else {}))
        found = resolve_run(config, layout, RunRequest(through=through)).window
        assert found is not None
        return found.notes

    ways = (
        "not trained on, as the default window is the newest span. To train on all spans, write "
        "schedule: {window: {all: true}}. To confirm the default, write schedule: {window: {last: "
        "1}}"
    )
    assert notes(None) == (f"4 spans, 2026-01-01 to 2026-01-04, are {ways}",)
    assert notes({"on_new_data": True}, "2026-01-02") == (f"span 2026-01-01 is {ways}",)
    assert notes(None, "2026-01-01") == ()
    for window in ({"last": 1}, {"last": 2}, {"all": True}):
        assert notes({"window": window}) == ()


def test_no_span_to_end_at_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,label\n1,0\n")
    data = {"format": "csv", "path": f"{tmp_path}/a.csv"}
    config = PipelineConfig.model_validate({"name": "x", "data": data, "task": "binary"})
    said = rf"^--through 7: data\.path \({tmp_path}/a\.csv\) has no spans"
    with pytest.raises(ConfigError, match=said):
        resolve_run(config, Layout(tmp_path / "out", "x"), RunRequest(through="7"))


def test_a_window_that_begins_after_the_newest_span(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the window begins at span 2027-01-01, after the newest"):
        window(days(tmp_path, 1), window={"since": "2027-01-01"})


def test_numbers_far_apart_are_not_listed_one_by_one(tmp_path: Path) -> None:
    for number in ("20260101000000", "20260131235959"):
        write(tmp_path / number / "a.csv")
    with pytest.raises(DataError, match=r"lacks span 20260101000001, .* and more"):
        window(spans_at(tmp_path, "{SPAN}/*.csv"), window={"all": True})


@pytest.mark.parametrize(("pattern", "found"), [("[0-3]", 1), ("[!0-3]", 1), ("[a-z]", 0)])
def test_character_classes_are_as_in_globs(tmp_path: Path, pattern: str, found: int) -> None:
    for part in (1, 7):
        write(tmp_path / "1" / f"part-{part}.csv")
    spans = spans_at(tmp_path, f"{{SPAN}}/part-{pattern}.csv")
    assert sum(len(span.files) for span in spans) == found


def test_no_span_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no span to train on$"):
        window(spans_at(tmp_path, "{YYYY}-{MM}-{DD}/*.csv"))
    write(tmp_path / "2026-01-01" / "t.csv", age=timedelta(0))
    with pytest.raises(
        DataError, match=r"on; span 2026-01-01 is still being written \(.*\); it is not read yet"
    ):
        window(days(tmp_path))


def test_spans_are_shown_and_parsed() -> None:
    assert SpanKind.DAY.show(DAY_1) == "2026-01-01"
    assert SpanKind.DAY.parse("2026-01-01") == DAY_1
    assert SpanKind.HOUR.show(DAY_1 * 24 + 8) == "2026-01-01T08"
    assert SpanKind.HOUR.parse("2026-01-01T08") == DAY_1 * 24 + 8
    assert (SpanKind.NUMBER.show(7), SpanKind.NUMBER.parse("7")) == ("7", 7)
    for kind, text in (
        (SpanKind.NUMBER, "2026-01-01"),
        (SpanKind.HOUR, "2026-01-01"),
        (SpanKind.HOUR, "2026-01-01T24"),
        (SpanKind.DAY, "2026-01-01T08"),
    ):
        with pytest.raises(ValueError, match=r"."):
            kind.parse(text)


@pytest.mark.parametrize("date_folder", ["2026-13-45", "2026-02-30"])
def test_folder_that_is_no_date_is_no_span(tmp_path: Path, date_folder: str) -> None:
    write(tmp_path / date_folder / "t.csv")
    assert [str(span) for span in days(tmp_path, 1)] == ["2026-01-01"]


def test_labels_that_come_later_belong_to_every_span(tmp_path: Path) -> None:
    for day in (1, 2):
        write(tmp_path / "rows" / f"2026-01-{day:02d}" / "t.csv")
    labels = write(tmp_path / "labels" / "1.csv", "key,label\n1,0\n")
    chosen = {"labels": {"path": str(labels.parent), "key": "key"}}

    def find() -> list[Span]:
        return spans_at(tmp_path / "rows", "{YYYY}-{MM}-{DD}/*.csv", **chosen)

    before = find()
    assert [(span.signature, span.digest()) for span in find()] == [
        (span.signature, span.digest()) for span in before
    ]
    write(labels.parent / "2.csv", "key,label\n2,1\n", age=timedelta(seconds=5))
    after = find()
    assert all(a.signature != b.signature for a, b in zip(after, before, strict=True))
    assert all(a.digest() != b.digest() for a, b in zip(after, before, strict=True))
    assert [span.modified for span in after] == [span.modified for span in before]
    with pytest.raises(DataError, match="still being written"):
        window(after)


def hours(folder: Path, *numbers: int) -> list[Span]:
    """Files as the request log of a server names them, of the 2nd of January."""
    for number in numbers:
        write(folder / "2026-01-02" / f"{number:02d}-77-ab12.parquet")
    return spans_at(folder, "{YYYY}-{MM}-{DD}/{HH}-*.parquet")


def test_hours_are_spans_numbered_since_1970(tmp_path: Path) -> None:
    write(tmp_path / "2026-01-01" / "23-1-a.parquet")
    write(tmp_path / "2026-01-02" / "24-1-a.parquet")
    spans = hours(tmp_path, 10, 9)
    midnight = (DAY_1 + 1) * 24
    assert [span.number for span in spans] == [midnight - 1, midnight + 9, midnight + 10]
    assert [str(span) for span in spans] == ["2026-01-01T23", "2026-01-02T09", "2026-01-02T10"]


def test_windows_of_hours_count_hours(tmp_path: Path) -> None:
    spans = hours(tmp_path, 8, 9, 10)
    chosen = window(spans, window={"last": 2})
    assert str(chosen) == "2 spans, 2026-01-02T09 to 2026-01-02T10"
    assert len(window(spans, window={"since": "2026-01-02"}).spans) == 3
    assert len(window(spans, spans[1].number, window={"since": "2026-01-02"}).spans) == 2
    spans = hours(tmp_path, 13)
    with pytest.raises(DataError, match="lacks span 2026-01-02T11, 2026-01-02T12, or its files"):
        window(spans, window={"last": 4})
