"""Dates and booleans are read by their declared format, or by the format of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.column_types.choice import Choice, annotate
from components.column_types.decision import choose_types
from components.column_types.facts import collect_facts
from components.example_gen.checks.dates import find_dates, merge_tallies, tally_dates
from components.example_gen.columns.encoded import Cell, single_values
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import DataNotes, read_notes
from components.schema_gen.files import keep_schema


@pytest.mark.parametrize(
    ("settings", "odd", "words"),
    [
        (
            {"type": "date"},
            "soon",
            "type date: expected %d/%m/%Y",
        ),
        (
            {"type": "date"},
            "28/02/2024",
            "'2024-01-05' (%Y-%m-%d) in row 2 of {file}, but '28/02/2024' (%d/%m/%Y) in row 32",
        ),
        (
            {"type": "boolean"},
            "",
            "type boolean",
        ),
    ],
)
def test_invalid_value_of_a_declared_type_is_refused_with_its_row(
    tmp_path, refusal, settings, odd, words
):
    rows = [f"{i % 2},2024-01-{5 + i % 20:02}" for i in range(30)]
    rows.insert(15, "0,")  # A missing one is none.
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["label,when", *rows[:30], f"1,{odd}", *rows[30:]]) + "\n")
    message = refusal(tmp_path, features={"when": settings})
    assert words.format(file=file) in message


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
    return choose_types(collect_facts({"when": sample, "size": sizes}, notes.dates))["when"]


def test_invalid_date_is_missing_and_noted(tmp_path, execute):
    whens = [*ISO_DAYS, "tomorrow", *ISO_DAYS[:9]]
    file = write(tmp_path, whens)
    notes = read_notes(execute(tmp_path, task="binary"))
    (note,) = notes.sentences
    assert "1 of 15,010 values" in note
    assert f"'tomorrow' in row 15002 of {file}" in note
    assert choose(notes, whens).settings == {"type": "date", "format": "%Y-%m-%d"}


def test_order_of_day_and_month_depends_on_all_rows(tmp_path, execute):
    early = [f"{i % 12 + 1:02}/{i % 11 + 1:02}/2024" for i in range(ROWS)]
    whens = [*early, "31/12/2024 18:30"]
    write(tmp_path, whens)
    notes = read_notes(execute(tmp_path, task="binary"))
    assert notes.sentences == []
    assert choose(notes, whens).settings == {"type": "date", "format": "%d/%m/%Y %H:%M"}


@pytest.fixture
def kept_schema(tmp_path_factory) -> str:
    """Of earlier data, in which the column was dates."""
    schema = text_format.Parse('feature { name: "when" type: BYTES }', schema_pb2.Schema())
    annotate(schema, {"when": Choice({"type": "date", "format": "%d/%m/%Y"}, "dates")})
    path = str(tmp_path_factory.mktemp("schema") / "schema.pbtxt")
    keep_schema(path, schema)
    return path


def test_later_dates_in_another_format_are_refused(tmp_path, refusal, kept_schema):
    file = write(tmp_path, ISO_DAYS[:60])
    message = refusal(tmp_path, task="binary", schema_file=kept_schema)
    assert "%d/%m/%Y in earlier data" in message
    assert f"'2024-01-01' in row 2 of {file}" in message


def tally(*texts: str, first_row: int = 2, name: str = "when") -> dict:
    values = pa.array([text.encode() for text in texts], pa.binary())
    rows = pa.RecordBatch.from_pydict({name: single_values(values)})
    return tally_dates(rows, Cell("a.csv", first_row), SETTINGS)


def test_tallies_of_dates_are_merged():
    parts = tally("1/2/2024", "2/2/2024"), tally("none", "?", first_row=4), tally("5/30/2024")
    both = merge_tallies(merge_tallies(parts[0], parts[1]), parts[2])
    (dates,) = find_dates(both).values()
    assert (dates.format, dates.values, dates.mismatches) == ("%m/%d/%Y", 5, 2)
    assert dates.first_mismatch == "'none' in row 4 of a.csv"
    assert merge_tallies(both, parts[0]).keys() == {"when"}
