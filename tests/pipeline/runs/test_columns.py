"""Column types in a plan, from the schema or from the first rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.run import show_plan
from pipeline.run_context import resolve_run
from pipeline.runs.columns import plan_columns
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


def test_columns_are_inferred_from_first_rows_before_a_run(pipeline: TinyPipeline) -> None:
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


def test_plan_refuses_unusable_data(pipeline: TinyPipeline) -> None:
    pipeline.write("a,b,a,label\n" + "1,2,3,0\n2,3,1,1\n" * 60)
    with pytest.raises(DataError, match="'a'"):
        show_plan(pipeline.config(), pipeline.folder / "output", verbose=False)


def test_columns_come_from_a_kept_schema(pipeline: TinyPipeline) -> None:
    Path(pipeline.layout.kept_schema).write_text(KEPT)
    first, *rest = lines(pipeline)
    assert first.endswith("schema.pbtxt: 1 ignored")
    assert rest == ["  size  ignore       a test; to change it: features: {size: {type: numeric}}"]


def test_own_preprocessing_has_no_column_types(
    pipeline: TinyPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(pipeline.folder)
    (pipeline.folder / "own_columns.py").write_text("def prepare(inputs, custom_config): ...\n")
    assert lines(pipeline, preprocessing="own_columns.prepare") == []
