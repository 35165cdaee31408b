"""Past labels of rows in files: from the pipeline's data, from the files, or as the files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.example_gen.formats import ExampleGenSettings
from components.serving.batch.past_labels import PastSeries
from components.serving.batch.reading import Block, Input, read_blocks
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface, RawColumn

INTERFACE = ModelInterface(
    (
        RawColumn("day", "day", "string", is_whole=False, width=1),
        RawColumn("y_lag_1", "y_lag_1", "float32", is_whole=False, width=1),
        RawColumn("y_lag_3", "y_lag_3", "float32", is_whole=False, width=1),
    ),
    label="y",
    label_dtype="float32",
    task="regression",
)


def read(folder: Path, text: str) -> Block:
    """The rows of a file, after a pipeline's data of 1 to 5 January with the labels 1 to 5."""
    data, rows = folder / "data.csv", folder / "rows.csv"
    data.write_text("day,shop,y\n" + "".join(f"2024-01-0{n},007,{n}\n" for n in range(1, 6)))
    rows.write_text(text)
    settings = ExampleGenSettings(
        format="csv",
        label="y",
        task="regression",
        order_by="day",
        lags={"steps": [1, 3], "key": "shop"},
    )
    series = PastSeries(settings, (str(data),))
    (block,) = read_blocks(Input((str(rows),), "csv", series=series), INTERFACE)
    return block


def past(block: Block) -> list[tuple[list[float] | None, ...]]:
    assert block.rows is not None
    return [(row["y_lag_1"], row["y_lag_3"]) for row in block.rows.to_pylist()]


def test_past_labels_are_of_the_pipelines_data(tmp_path):
    block = read(tmp_path, "day,shop\n2024-01-06,007\n2024-01-08,007\n2024-01-06,8\n")
    assert past(block) == [([5], [3]), (None, [5]), (None, None)]
    assert block.missing == {"y_lag_1": 2, "y_lag_3": 1}


def test_labels_of_the_file_are_newer(tmp_path):
    text = "day,shop,y\n2024-01-05,007,50\n2024-01-06,007,60.5\n2024-01-07,007,\n"
    assert past(read(tmp_path, text)) == [([4], [2]), ([50], [3]), ([60.5], [4])]


def test_past_labels_in_the_file_are_not_computed(tmp_path):
    block = read(tmp_path, "day,y_lag_1,y_lag_3\n2024-01-06,7,\n")
    assert past(block) == [([7], None)]
    assert not block.missing


def test_file_without_the_series_columns_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"data\.lags\.key\.0: the input .* has no column `shop`"):
        read(tmp_path, "day\n2024-01-06\n")
