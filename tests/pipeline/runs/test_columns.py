"""What a plan says of columns: from the schema, or from the first rows; on one screen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.column_types.choice import Choice
from pipeline.cli.run import show_plan
from pipeline.run_context import resolve_run
from pipeline.runs.columns import ColumnTypes, gist_of_types, plan_columns
from tests.support.tiny_data import TinyPipeline
from trainer_module.errors import DataError

ROWS = "name,when,size,place,label\n" + "".join(
    f"N{i:03},{i % 28 + 1:02}/0{i % 9 + 1}/2025,{i % 7}.5,{('north', 'south')[i % 2]},{i % 3 % 2}\n"
    for i in range(120)
)
KEPT = """
feature { name: "size" type: FLOAT annotation { tag: '{"type": "ignore"}' comment: "a test" } }
feature { name: "place" type: BYTES }
feature { name: "label" type: INT }
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> TinyPipeline:
    made = TinyPipeline(tmp_path)
    made.write(ROWS)
    return made


def lines(pipeline: TinyPipeline, **changes: object) -> list[str]:
    columns = plan_columns(resolve_run(pipeline.config(**changes), pipeline.layout))
    return [] if columns is None else list(columns.lines())


def test_before_the_first_run_its_first_rows_tell(pipeline: TinyPipeline) -> None:
    assert lines(pipeline) == [
        "columns, inferred from all 120 rows (final after the first run): 1 ignored, 1 date, 1 "
        "numeric, 1 categorical",
        "  name   ignore       120 different values in 120 rows, as an identifier has; to change "
        "it: features: {name: {type: categorical}}",
        "  when   date         dates such as '01/01/2025'; to change it: features: {when: {type: "
        "ignore}}",
        "  place  categorical  text of 2 values; to change it: features: {place: {type: ignore}}",
        "  size   numeric      numbers from 0.5 to 6.5; to change it: features: {size: {type: "
        "ignore}}",
    ]


def test_a_first_look_asks_how_dated_rows_are_split(pipeline: TinyPipeline) -> None:
    days = [f"2025-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(120)]
    rows = (f"{day},{row % 7},{row // 60}\n" for row, day in enumerate(days))
    pipeline.write("when,size,label\n" + "".join(rows))

    def notes(**data: object) -> list[str]:
        config = pipeline.config(data=pipeline.data | data)
        columns = plan_columns(resolve_run(config, pipeline.layout))
        return [] if columns is None else list(columns.notes)

    assert ["data: {order_by: when};" in note for note in notes()] == [True]
    assert ["when} in place of split_by;" in note for note in notes(split_by="when")] == [True]
    assert notes(order_by=None) == []
    assert notes(order_by="when") == []


def test_the_first_rows_are_known_to_be_a_part_of_all(pipeline: TinyPipeline) -> None:
    shuffled = (i * 7919 % 25_000 for i in range(25_000))
    pipeline.write("sample,size,label\n" + "".join(f"{n},{n % 7}.5,{n % 2}\n" for n in shuffled))
    first, sample, _ = lines(pipeline)
    assert first.startswith("columns, inferred from the first 20,000 rows (")
    assert sample.startswith("  sample  ignore   ")


def test_the_line_that_overrides_a_choice_does(pipeline: TinyPipeline) -> None:
    said = lines(pipeline, features={"name": {"type": "categorical"}})
    assert said[-1] == "  name   categorical  declared in the config"


def test_text_without_spaces_is_told_where_the_config_wants_words(pipeline: TinyPipeline) -> None:
    rows = (
        f"{i}\u756a\u76ee\u306e\u6620\u753b\u306f\u3068\u3066\u3082,{i % 2}" for i in range(120)
    )
    pipeline.write("review,label\n" + "\n".join(rows) + "\n")
    (found,) = lines(pipeline)[1:]
    assert found.startswith("  review  text         sentences without spaces between words, split")
    (told,) = lines(pipeline, features={"review": {"type": "text"}})[1:]
    assert told == (
        "  review  text         declared in the config; its words are not separated by spaces, "
        "so use tokens: characters or wordpiece"
    )


def test_lists_and_truth_of_parquet_are_told(tmp_path: Path) -> None:
    rows = range(120)
    table = {
        "label": [i % 2 for i in rows],
        "active": [i % 3 > 0 for i in rows],
        "history": [[i / 2, 1.5, 2.5] for i in rows],
        "tags": [["a", "b"][: i % 3] for i in rows],
        "home": [{"city": "NS"[i % 2]} for i in rows],
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    pipeline = TinyPipeline(tmp_path)
    data = {"format": "parquet", "path": str(tmp_path / "a.parquet"), "label": "label"}
    told = {line.split()[0]: line for line in lines(pipeline, data=data)[1:]}
    assert "boolean" in told["active"]
    assert "lists of 3 numbers in each row" in told["history"]
    assert "lists of up to 2 values, text" in told["tags"]
    assert "text of 2 values" in told["home.city"]


def test_a_plan_refuses_what_a_run_would(pipeline: TinyPipeline) -> None:
    pipeline.write("a,b,a,label\n" + "1,2,3,0\n2,3,1,1\n" * 60)
    with pytest.raises(DataError, match="'a'"):
        show_plan(pipeline.config(), pipeline.folder / "output", verbose=False)


def test_files_that_a_plan_does_not_look_into_are_said(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path)
    (tmp_path / "a.tfrecord").write_bytes(b"")
    data = {"format": "tfrecord", "path": str(tmp_path / "a.tfrecord"), "label": "label"}
    first, declared = lines(pipeline, data=data, features={"size": {"type": "numeric"}})
    assert first.startswith("columns: the first run infers their types")
    assert "declared in the config" in declared


def test_a_kept_schema_tells(pipeline: TinyPipeline) -> None:
    Path(pipeline.layout.kept_schema).write_text(KEPT)
    first, *rest = lines(pipeline)
    assert first.endswith("schema.pbtxt: 1 ignored")
    assert rest == ["  size  ignore       a test; to change it: features: {size: {type: numeric}}"]


def test_a_schema_without_choices_says_so(pipeline: TinyPipeline) -> None:
    Path(pipeline.layout.kept_schema).write_text('feature { name: "label" type: INT }')
    (line,) = lines(pipeline)
    assert line.endswith("schema.pbtxt contains no types: numbers are numeric, text is categorical")


def test_a_function_of_the_users_leaves_no_choice(
    pipeline: TinyPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(pipeline.folder)
    (pipeline.folder / "own_columns.py").write_text("def prepare(inputs, custom_config): ...\n")
    assert lines(pipeline, preprocessing="own_columns.prepare") == []


def test_an_annotation_that_says_nothing_is_named(pipeline: TinyPipeline) -> None:
    path = Path(pipeline.layout.kept_schema)
    path.write_text(KEPT.replace("ignore", "ignored"))
    with pytest.raises(DataError, match=r"schema\.pbtxt: the annotation of column 'size'"):
        lines(pipeline)


def test_five_thousand_columns_fit_on_a_screen() -> None:
    numbers = {f"n{i:04}": Choice({"type": "numeric"}, "numbers") for i in range(4990)}
    odd = {f"id {i}": Choice({"type": "ignore"}, "an identifier") for i in range(10)}
    types = numbers | odd
    first, *shown, last = ColumnTypes("columns", types, odd).lines()
    assert first == "columns: 4,990 numeric, 10 ignored"
    assert len(shown) == 20
    assert shown[0].endswith('an identifier; to change it: features: {"id 0": {type: categorical}}')
    assert last == "  and 4,980 more: 4,980 numeric"
    gist = "ignores id 0, id 1, id 2, id 3, id 4 and 5 more; 4,990 numeric"
    assert gist_of_types(types) == gist
