"""Which spans there are, and the window of them that a run trains on."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.sections.data import DataSettings, SpanKind, has_spans
from pipeline.config.sections.schedule import ScheduleSettings
from pipeline.data.files import locate_data
from pipeline.data.spans import Span, Window, choose_window, list_spans, whole_data
from pipeline.layout import Layout
from trainer_module.errors import DataError

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


def test_dates_are_days_since_1970(tmp_path: Path) -> None:
    spans = days(tmp_path, 3, 1, 2)
    assert [span.number for span in spans] == [DAY_1, DAY_1 + 1, DAY_1 + 2]
    assert [str(span) for span in spans] == ["2026-01-01", "2026-01-02", "2026-01-03"]


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


def test_window_ends_at_the_requested_span(tmp_path: Path) -> None:
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
