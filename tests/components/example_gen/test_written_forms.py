"""Dates and words for yes and no: as the config declares them, or as all rows say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.column_types.choice import Choice, annotate
from components.column_types.decision import choose_types
from components.column_types.facts import collect_facts
from components.example_gen.checks.dates import check_dates, find_dates, merge_tallies, tally_dates
from components.example_gen.checks.values import find_notations, merge_notations
from components.example_gen.columns.encoded import Cell, single_values
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import DataNotes, read_notes
from components.schema_gen.files import keep_schema
from trainer_module.errors import DataError
from trainer_module.features.numeric import BooleanFeature
from trainer_module.settings import DateFeature

DATE = {"when": DateFeature(type="date")}


@pytest.mark.parametrize(
    ("settings", "odd", "words"),
    [
        (
            {"type": "date"},
            "soon",
            "which is not of the type date: expected %d/%m/%Y, %d-%m-%Y or %Y-%m-%d or",
        ),
        ({"type": "date"}, "2024-02-30", "which is not of the type date: expected"),
        (
            {"type": "date"},
            "28/02/2024",
            r"has two notations: '2024-01-05' (%Y-%m-%d) in row 2 of {file}, but '28/02/2024'"
            " (%d/%m/%Y) in row 32",
        ),
        (
            {"type": "date", "format": "%d.%m.%Y"},
            "",
            "in row 2 of {file}, which is not of the type date: expected %d.%m.%Y.",
        ),
        (
            {"type": "boolean"},
            "",
            "which is not of the type boolean: expected true or false, yes or no, 1 or 0.",
        ),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_named_with_its_row(tmp_path, refusal, settings, odd, words):
    rows = [f"{i % 2},2024-01-{5 + i % 20:02}" for i in range(30)]
    rows.insert(15, "0,")  # A missing one is none.
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["label,when", *rows[:30], f"1,{odd}", *rows[30:]]) + "\n")
    message = refusal(tmp_path, features={"when": settings})
    assert words.format(file=file) in message


def test_what_can_be_read_stays_as_it_is(tmp_path, generate):
    texts = ["31/12/2024 18:30", " 1/1/2024", ""] * 20
    table = {"label": [0, 1] * 30, "when": texts, "on": [1.0, 0.0, None] * 20}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    features = {"when": {"type": "date"}, "on": {"type": "boolean"}}
    kept = generate(tmp_path, data_format="parquet", features=features)
    assert sum(map(len, kept.values())) == 60


@pytest.mark.parametrize(
    ("values", "place", "problem"),
    [
        (["abc", "12", None], 0, "is 'abc' in row 1 of {file}, which is not a number"),
        ([None, "12", "x1"], 2, "is 'x1' in row 3 of {file}, which is not a number"),
        (["1.5", "12"], 0, "is '1.5' in row 1 of {file}, which is a number stored as text"),
    ],
)
def test_text_that_is_declared_numeric_is_named_with_its_row(
    tmp_path, refusal, values, place, problem
):
    table = {"label": [0, 1] * 30, "size": (values * 60)[:60]}
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table(table), file)
    message = refusal(tmp_path, data_format="parquet", number_columns=("size",))
    assert problem.format(file=file) in message
    assert "features: {size: {type: categorical}}" in message


def test_a_column_that_is_declared_numeric_needs_a_value(tmp_path, refusal):
    (tmp_path / "a.csv").write_text("label,size\n" + "0,\n1,\n" * 20)
    assert "'size' has no value in any row, but" in refusal(tmp_path, number_columns=("size",))


def test_parts_of_the_data_have_to_agree():
    def written(value: str, row: int):
        column = single_values(pa.array([value.encode()], pa.binary()))
        rows = pa.RecordBatch.from_pydict({"when": column})
        return find_notations(rows, Cell("a.csv", row, ""), DATE)

    both = merge_notations(written("1/2/2024", 2), written("1/13/2024", 3))
    assert both["when"].forms == ("%m/%d/%Y",)
    with pytest.raises(DataError, match=r"'1/2/2024' \(%m/%d/%Y\) in row 2 .*'13/2/2024' \(%d/"):
        merge_notations(both, written("13/2/2024", 9))


def test_numbers_are_read_as_text_is():
    rows = pa.RecordBatch.from_pydict(
        {
            "when": single_values(pa.array([20240131, 20240201])),
            "on": single_values(pa.array([1.0, 0.0], pa.float32())),
        }
    )
    features = {**DATE, "on": BooleanFeature(type="boolean")}
    written = find_notations(rows, Cell("a.csv", 2), features)
    assert written["when"].forms == ("%Y%m%d",)
    assert "on" in written


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


def test_a_broken_date_far_down_is_missing_and_said(tmp_path, execute):
    whens = [*ISO_DAYS, "tomorrow", *ISO_DAYS[:9]]
    file = write(tmp_path, whens)
    notes = read_notes(execute(tmp_path, task="binary"))
    what = (
        "dates such as '2024-01-01'; 1 of 15,010 values do not have the format %Y-%m-%d and count"
        f" as missing dates, the first is 'tomorrow' in row 15002 of {file}"
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
        "column 'when': dates such as '2024-01-01', but 5,000 of 20,000 values do not have the"
        f" format %Y-%m-%d, the first is '28.02.2024' in row 15002 of {file}: write all dates in"
        " one format"
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
        "1 of 51 values do not have the format %d/%m/%Y and count as missing dates, the"
        " first is '1/13/24' in" in note
    )


def test_later_data_in_another_layout_is_refused(tmp_path, refusal, kept_schema):
    file = write(tmp_path, ISO_DAYS[:60])
    assert refusal(tmp_path, task="binary", schema_file=kept_schema) == (
        "Column 'when' had dates in the format %d/%m/%Y in earlier data, but 60 of 60 values"
        f" have another format, the first is '2024-01-01' in row 2 of {file}: write all dates in"
        " the same format, or declare the column by features: {when: {type: ...}}."
    )


def tally(*texts: str, first_row: int = 2, name: str = "when") -> dict:
    values = pa.array([text.encode() for text in texts], pa.binary())
    rows = pa.RecordBatch.from_pydict({name: single_values(values)})
    return tally_dates(rows, Cell("a.csv", first_row), SETTINGS)


def test_parts_of_the_data_are_counted_together():
    parts = tally("1/2/2024", "2/2/2024"), tally("none", "?", first_row=4), tally("5/30/2024")
    both = merge_tallies(merge_tallies(parts[0], parts[1]), parts[2])
    (dates,) = find_dates(both).values()
    assert (dates.format, dates.values, dates.mismatches) == ("%m/%d/%Y", 5, 2)
    assert dates.first_mismatch == "'none' in row 4 of a.csv"
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
