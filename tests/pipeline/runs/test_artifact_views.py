"""Views of a run's artifacts."""

from __future__ import annotations

import pytest

from pipeline.component_ids import ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.ingestion import make_example_gen
from pipeline.layout import Layout
from pipeline.report.step_views import View
from pipeline.run_context import resolve_run
from pipeline.runs.artifact_views import ArtifactViews
from tests.support.artifact_reading import Reading, config_of
from tests.support.small_components import checks, play

WIDE = [f"c{number}" for number in range(20)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PipelineConfig:
    path = tmp_path_factory.mktemp("data") / "cars.csv"
    numbers = [[(n * (i + 7)) % 61 + 0.5 for i in range(len(WIDE))] for n in range(60)]
    lines = [f"{'x' * 100} {n},{n % 2},{','.join(map(str, numbers[n]))}" for n in range(60)]
    path.write_text("\n".join([f"name,label,{','.join(WIDE)}", *lines]))
    return config_of(data={"format": "csv", "path": str(path)})


@pytest.fixture(scope="module")
def layout(config: PipelineConfig, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A run with a real ExampleGen, and statistics and a schema of other rows."""
    found = Layout(tmp_path_factory.mktemp("output"), "read")
    found.root.mkdir(parents=True)
    context = resolve_run(config, found)
    example_gen = make_example_gen(config.data, context.location, context.ingestion)
    nodes = [example_gen, *checks(config)[1:]]
    play(config, found, Reading(config, found), nodes, "run 1")
    return found


def view(config: PipelineConfig, layout: Layout, component: ComponentId, rows: int) -> list[View]:
    return ArtifactViews(config, layout, "run 1").view(component, rows)


def test_rows_of_many_columns_stand_beside_each_other(
    config: PipelineConfig, layout: Layout
) -> None:
    (shown,) = view(config, layout, ComponentId.EXAMPLE_GEN, 2)
    assert shown.heads == ("column", "row 1", "row 2")
    cells = {name: first for name, first, _ in shown.rows}
    assert cells.keys() == {"name", "label", *WIDE}
    assert float(cells["c3"]) % 1 == 0.5
    assert cells["name"].startswith("xxx")
    assert len(cells["name"]) <= 40


def test_statistics_and_schema_have_a_row_per_column(
    config: PipelineConfig, layout: Layout
) -> None:
    train, evaluation = view(config, layout, ComponentId.STATISTICS_GEN, 5)
    assert (train.title, evaluation.title) == ("train: 100 rows", "eval: 20 rows")
    rows = {row[0]: dict(zip(train.heads, row, strict=True)) for row in train.rows}
    assert rows["label"]["mean"] == "0.5"
    assert rows["side"]["most frequent"] == "south 50%, north 50%"
    assert (rows["side"]["missing"], rows["side"]["unique"]) == ("0%", "2")
    (schema,) = view(config, layout, ComponentId.SCHEMA_GEN, 5)
    columns = {row[0]: row[1:] for row in schema.rows}
    assert columns["side"] == ("bytes", "100%", "north, south (2 values)")
