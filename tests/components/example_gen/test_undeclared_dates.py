"""Dates that nobody has declared: all rows say how they are written, and which are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.column_types.choice import Choice, annotate
from components.column_types.decision import choose_types
from components.column_types.facts import look_at
from components.example_gen.checks.dates import check_dates, find_dates, merge_tallies, tally_dates
from components.example_gen.columns.encoded import Cell, single_values
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import DataNotes, read_notes
from components.schema_gen.files import keep_schema

SETTINGS = ExampleGenSettings(format="csv", label="label", task="binary")
ROWS = 15_000
ISO_DAYS = [f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}" for i in range(ROWS)]


def write(folder: Path, whens: Sequence[str], name: str = "a.csv") -> Path:
    rows = (f"{i % 2},{i % 7}.5,{when}" for i, when in enumerate(whens))
    (folder / name).write_text("\n".join(["label,size,when", *rows]) + "\n")
    return folder / name


def choose(notes: DataNotes, whens: Sequence[str]) -> Choice:
    """What the column is taken for by a sample of it and what was found in all rows."""
    sample = pa.array([when.encode() for when in whens[:1000]], pa.binary())
    sizes = pa.array([i % 7 + 0.5 for i in range(1000)], pa.float32())
    return choose_types(look_at({"when": sample, "size": sizes}, notes.dates))["when"]


def test_a_broken_date_far_down_is_missing_and_said(tmp_path, execute):
    whens = [*ISO_DAYS, "tomorrow", *ISO_DAYS[:9]]
    file = write(tmp_path, whens)
    notes = read_notes(execute(tmp_path, task="binary"))
    what = (
        "dates such as '2024-01-01'; 1 of 15,010 values not written as %Y-%m-%d count as missing"
        f" dates, first 'tomorrow' in row 15002 of {file}"
    )
    assert notes.sentences == [f"column 'when': {what}"]
    assert choose(notes, whens) == Choice({"type": "date", "format": "%Y-%m-%d"}, what)


def test_days_beyond_12_decide_wherever_they_are(tmp_path, execute):
    early = [f"{i % 12 + 1:02}/{i % 11 + 1:02}/2024" for i in range(ROWS)]
    whens = [*early, "31/12/2024 18:30"]
    write(tmp_path, whens)
    notes = read_notes(execute(tmp_path, task="binary"))
    assert notes.sentences == []
    assert choose(notes, whens).settings == {"type": "date", "format": "%d/%m/%Y %H:%M"}


def test_another_layout_far_down_makes_text_of_the_column_and_is_said(tmp_path, execute):
    whens = [*ISO_DAYS, *["28.02.2024"] * 5000]
    file = write(tmp_path, whens)
    notes = read_notes(execute(tmp_path, task="binary"))
    (note,) = notes.sentences
    assert note == (
        "column 'when': dates such as '2024-01-01', but 5,000 of 20,000 values not written as"
        f" %Y-%m-%d, first '28.02.2024' in row 15002 of {file}: write them alike"
    )
    assert choose(notes, whens).type == "categorical"


@pytest.fixture
def kept_schema(tmp_path_factory) -> str:
    """Of earlier data, in which the column was dates."""
    schema = text_format.Parse('feature { name: "when" type: BYTES }', schema_pb2.Schema())
    annotate(schema, {"when": Choice({"type": "date", "format": "%d/%m/%Y"}, "dates")})
    path = str(tmp_path_factory.mktemp("schema") / "schema.pbtxt")
    keep_schema(path, schema)
    return path


def test_later_data_is_read_by_the_format_of_the_first(tmp_path, execute, kept_schema):
    # By themselves they would be months before days.
    write(tmp_path, ["01/02/2024"] * 50 + ["1/13/24"])
    (note,) = read_notes(execute(tmp_path, task="binary", schema_file=kept_schema)).sentences
    assert (
        "1 of 51 values not written as %d/%m/%Y count as missing dates, first '1/13/24' in" in note
    )


def test_later_data_in_another_layout_is_refused(tmp_path, refusal, kept_schema):
    file = write(tmp_path, ISO_DAYS[:60])
    assert refusal(tmp_path, task="binary", schema_file=kept_schema) == (
        "Column 'when' was dates written as %d/%m/%Y in earlier data, but 60 of 60 values are not,"
        f" first '2024-01-01' in row 2 of {file}: write them so, or declare the column by"
        " features: {when: {type: ...}}."
    )


def tally(*texts: str, first_row: int = 2, name: str = "when") -> dict:
    values = pa.array([text.encode() for text in texts], pa.binary())
    rows = pa.RecordBatch.from_pydict({name: single_values(values)})
    return tally_dates(rows, Cell("a.csv", first_row), SETTINGS)


def test_parts_of_the_data_are_counted_together():
    parts = tally("1/2/2024", "2/2/2024"), tally("none", "?", first_row=4), tally("5/30/2024")
    both = merge_tallies(merge_tallies(parts[0], parts[1]), parts[2])
    (dates,) = find_dates(both).values()
    assert (dates.format, dates.values, dates.odd) == ("%m/%d/%Y", 5, 2)
    assert dates.first_odd == "'none' in row 4 of a.csv"
    assert merge_tallies(both, parts[0]).keys() == {"when"}


@pytest.mark.parametrize("name", ["label", "declared"])
def test_what_is_said_of_a_column_by_others_is_left_to_them(name):
    settings = SETTINGS.model_copy(update={"mixed_columns": ("declared",)})
    rows = pa.RecordBatch.from_pydict({name: single_values(pa.array([b"2024-01-01"] * 3))})
    assert tally_dates(rows, Cell("a.csv", 2), settings) == {}


def test_without_choices_in_a_schema_no_column_is_of_dates():
    found = tally("1/2/2024", "1/2/2024", "soon")
    assert len(check_dates(found, None)) == 1
    assert check_dates(found, {}) == []
