"""Which files of an hour ExampleGen's driver chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfx.proto import example_gen_pb2, range_config_pb2

from components.example_gen.component import Driver

HOUR = 20454 * 24 + 8
"""The 1st of January 2026, at 8."""


def choose(
    folder: Path, patterns: dict[str, str], span: int | None
) -> tuple[int, int | None, list[str]]:
    """The span, its version and the globs that the executor is given."""
    splits = [example_gen_pb2.Input.Split(name=n, pattern=p) for n, p in patterns.items()]
    only = range_config_pb2.StaticRange(start_span_number=span, end_span_number=span)
    asked = range_config_pb2.RangeConfig(static_range=only) if span is not None else None
    processor = Driver(None).get_input_processor(splits, asked, str(folder))
    span, version = processor.resolve_span_and_version()
    assert processor.get_input_fingerprint(span, version)
    globs = [processor.get_pattern_for_span_version(p, span, version) for p in patterns.values()]
    return span, version, globs


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a\n1\n")


def test_the_hour_that_is_asked_for(tmp_path):
    write(tmp_path, "2026-01-01/08-1.csv", "2026-01-01/09-1.csv", "2026-01-02/08-1.csv")
    found = choose(tmp_path, {"all": "{YYYY}-{MM}-{DD}/{HH}-*.csv"}, HOUR)
    assert found == (HOUR, None, ["2026-01-01/08-*.csv"])


def test_its_latest_version_in_every_split(tmp_path):
    for split in ("train", "eval"):
        write(tmp_path, *(f"20260101/08/v{n}/{split}.csv" for n in (2, 10)))
        write(tmp_path, f"20260101/09/v11/{split}.csv")
    pattern = "{YYYY}{MM}{DD}/{HH}/v{VERSION}/"
    found = choose(tmp_path, {"a": f"{pattern}train.csv", "b": f"{pattern}eval.csv"}, HOUR)
    assert found == (HOUR, 10, ["20260101/08/v10/train.csv", "20260101/08/v10/eval.csv"])


def test_days_are_as_stock_has_them(tmp_path):
    write(tmp_path, "2026-01-01/8-1.csv")
    found = choose(tmp_path, {"all": "{YYYY}-{MM}-{DD}/*.csv"}, HOUR // 24)
    assert found == (HOUR // 24, None, ["2026-01-01/*.csv"])


def test_an_hour_has_to_be_asked_for(tmp_path):
    with pytest.raises(ValueError, match=r"\{HH\} in a split's pattern needs the span to read"):
        choose(tmp_path, {"all": "{YYYY}-{MM}-{DD}/{HH}.csv"}, None)
