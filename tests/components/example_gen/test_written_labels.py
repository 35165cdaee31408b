"""A label that is a number in text is that number, in every format and by every file."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_gen.sources.surveys import merge_surveys, note_columns
from components.serving.batch.reading import Input, read_blocks
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface, RawColumn

DOLLARS = ["$22,500", "($1,234)", "$7.5", "N/A"], [22500.0, -1234.0, 7.5, None]
EUROS = ["1.200,50 €", "€ 12", "-0,5 €", ""], [1200.5, 12.0, -0.5, None]
THOUSANDS = ["22,500", "950", "1,234.5", "none"], [22500.0, 950.0, 1234.5, None]
SETTINGS = ExampleGenSettings(format="csv", label="price", task="regression")


def write(folder: Path, labels: list[str], files: int = 1) -> None:
    for number in range(files):
        part = labels[number::files]
        lines = (f'{place},"{label}"' for place, label in enumerate(part))
        (folder / f"{number}.csv").write_text("\n".join(["size,price", *lines]) + "\n")


@pytest.mark.parametrize(("texts", "numbers"), [DOLLARS, EUROS, THOUSANDS])
@pytest.mark.parametrize("data_format", ["csv", "jsonl", "parquet"])
def test_numbers_in_text_are_labels(
    tmp_path: Path, read_rows, texts: list[str], numbers: list[float | None], data_format: str
) -> None:
    if data_format == "csv":
        write(tmp_path, texts * 5)
    elif data_format == "jsonl":
        lines = [f'{{"size": 1, "price": "{text}"}}\n' for text in texts * 5]
        (tmp_path / "a.jsonl").write_text("".join(lines))
    else:
        pq.write_table(pa.table({"size": [1.0] * 20, "price": texts * 5}), tmp_path / "a.parquet")
    found = read_rows(tmp_path, data_format, label="price", task="regression")
    assert [row["price"] for row in found] == [[n] if n is not None else [] for n in numbers] * 5


def test_order_of_rows_and_files_decides_nothing(tmp_path: Path) -> None:
    labels = [f"${number:,}.50" for number in range(900, 5900)] + ["$1,000", "soon"]
    kinds = []
    for files in (1, 3):
        folder = tmp_path / str(files)
        folder.mkdir()
        write(folder, random.Random(files).sample(labels, len(labels)), files)  # noqa: S311
        source = make_source(SETTINGS)
        surveys = [source.survey((str(file),)) for file in sorted(folder.glob("*"))]
        kinds.append(merge_surveys(surveys, SETTINGS))
        (note,) = note_columns(surveys, kinds[-1], SETTINGS)
        assert note.startswith("label 'price' is read from text, where '$")
        with pytest.raises(DataError, match=r"Label 'price' is 'soon' in row \d+ of .*\.csv, but"):
            [list(source.read((str(file),), kinds[-1])) for file in folder.glob("*")]
    assert kinds[0] == kinds[1]
    assert kinds[0].label_writing == kinds[1].label_writing


@pytest.mark.parametrize(
    "labels", [["1.234", "2.345", "$"], ["cheap", "dear"], ["18:30", "7:15"], ["$5", "€7"]]
)
def test_what_leaves_a_doubt_is_refused(tmp_path: Path, read_error, labels: list[str]) -> None:
    write(tmp_path, labels)
    said = read_error(tmp_path, label="price", task="regression")
    assert "but task: regression needs a finite number in every row" in said


def test_labelled_rows_for_a_pushed_model_are_read_so_too(tmp_path: Path) -> None:
    write(tmp_path, EUROS[0][:3])
    size = RawColumn("size", "size", "float32", False, 1)
    interface = ModelInterface((size,), "price", "float32", "regression")
    given = Input((str(tmp_path / "0.csv"),), "csv", also={"price": ColumnKind.FLOAT})
    (block,) = read_blocks(given, interface)
    assert block.rows is not None
    assert block.rows.column("price").to_pylist() == [[1200.5], [12.0], [-0.5]]
