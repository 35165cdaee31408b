"""Labels that are not there, are numbers in text, or come later in files of their own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.first_look import check_table, read_first_rows
from components.example_gen.formats import CsvSettings, ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.paths import find_label_files
from components.example_gen.sources import make_source
from components.example_gen.sources.parquet_source import mark_own
from components.example_gen.sources.surveys import merge_surveys, note_columns
from components.serving.batch.reading import Input, read_blocks
from pipeline.config.sections.data import csv_is_the_format
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import DataError
from trainer_module.export.interface import ModelInterface, RawColumn

WRITERS = {
    "csv": lambda rows, path: rows.to_csv(path, index=False),
    "jsonl": lambda rows, path: rows.to_json(path, orient="records", lines=True),
    "parquet": lambda rows, path: rows.to_parquet(path),
}


def settings_of(data_format: str, **changes: object) -> ExampleGenSettings:
    task = {"kind": "generation", **dict(changes.pop("task", {}))}
    given = {"format": data_format, "label": "label", "task": task, "may_lack_label": True}
    return ExampleGenSettings.model_validate({**given, **changes})


@pytest.mark.parametrize("data_format", WRITERS)
@pytest.mark.parametrize("label", [None, "b"])
def test_labels_are_read_where_there_are_some(
    tmp_path: Path, data_format: str, label: str | None
) -> None:
    rows = pd.DataFrame({"name": ["x", "y", "z"]} | ({"label": [label] * 3} if label else {}))
    file = tmp_path / f"rows.{data_format}"
    WRITERS[data_format](rows, file)
    source = make_source(settings_of(data_format))
    (files,) = source.plan([str(file)])
    kinds = merge_surveys([source.survey(files)], settings_of(data_format))
    (batch,) = source.read(files, kinds)
    assert batch.rows.to_pydict() == {
        "name": [[b"x"], [b"y"], [b"z"]],
        "label": [[(label or "none").encode()]] * 3,
    }
    # One class of all rows is no reason to refuse them.
    assert check_table(settings_of(data_format), [str(file)]) == {"name", "label"}


def test_a_label_that_is_needed_or_named_has_to_be_there(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("name\nx\ny\n")
    for settings in (
        settings_of("csv", task={"conditional": True}, may_lack_label=False),
        settings_of("csv", label="digit", may_lack_label=False),
    ):
        with pytest.raises(DataError, match=f"There is no label column '{settings.label}'"):
            check_table(settings, [str(file)])


def tfrecord(path: Path, labels: list[str | None]) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for label in labels:
            values = {"name": b"x"} | ({"label": label.encode()} if label else {})
            feature = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
                for name, value in values.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return str(path)


@pytest.mark.parametrize("rows", [3, 600])  # Of 512 records is a batch.
def test_rows_without_a_label_beside_labelled_ones_lack_it(tmp_path: Path, rows: int) -> None:
    settings = settings_of("tfrecord")
    files = [
        tfrecord(tmp_path / "a.tfrecord", [None] * rows + ["b"]),
        tfrecord(tmp_path / "b.tfrecord", [None] * rows),
    ]
    for data, expected in ((files, [None] * rows + ["b"] + [None] * rows), (files[1:], ["none"])):
        source = make_source(settings)
        groups = source.plan(data)
        kinds = merge_surveys([source.survey(group) for group in groups], settings)
        batches = [batch for group in groups for batch in source.read(group, kinds)]
        found = [row.get("label") for batch in batches for row in batch.rows.to_pylist()]
        wanted = [label and [label.encode()] for label in expected]
        assert found == (wanted if len(wanted) > 1 else wanted * rows)


def test_a_file_without_the_label_lacks_it_beside_one_with_labels(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,label\nx,b\ny,b\n")
    (tmp_path / "b.csv").write_text("name\nz\n")
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    with pytest.raises(DataError, match=r"'label' is missing in 1 row, first in row 2 of .*b.csv"):
        check_table(settings_of("csv"), files)
    check_table(settings_of("csv", unlabelled="skip"), files)


DOLLARS = ["$22,500", "($1,234)", "$7.5", "N/A"], [22500.0, -1234.0, 7.5, None]
EUROS = ["1.200,50 €", "€ 12", "-0,5 €", ""], [1200.5, 12.0, -0.5, None]
THOUSANDS = ["22,500", "950", "1,234.5", "none"], [22500.0, 950.0, 1234.5, None]
SETTINGS = ExampleGenSettings(format="csv", label="price", task="regression")


def write(folder: Path, labels: list[str], files: int = 1) -> None:
    for number in range(files):
        part = labels[number::files]
        lines = (f'{place},"{label}"' for place, label in enumerate(part))
        (folder / f"{number}.csv").write_text("\n".join(["size,price", *lines]) + "\n")


@pytest.mark.parametrize(
    ("data_format", "written"), [("csv", DOLLARS), ("jsonl", EUROS), ("parquet", THOUSANDS)]
)
def test_numbers_in_text_are_labels(
    tmp_path: Path, read_rows, data_format: str, written: tuple[list[str], list[float | None]]
) -> None:
    texts, numbers = written
    if data_format == "csv":
        write(tmp_path, texts * 5)
    elif data_format == "jsonl":
        lines = [f'{{"size": 1, "price": "{text}"}}\n' for text in texts * 5]
        (tmp_path / "a.jsonl").write_text("".join(lines))
    else:
        pq.write_table(pa.table({"size": [1.0] * 20, "price": texts * 5}), tmp_path / "a.parquet")
    found = read_rows(tmp_path, data_format, label="price", task="regression")
    assert [row["price"] for row in found] == [[n] if n is not None else [] for n in numbers] * 5


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["22.500 €", "1.900 €"], [22500.0, 1900.0]),
        (["22,500 kg", "1,234", "1.234"], [22.5, 1.234, 1234.0]),
    ],
)
def test_the_decimal_separator_of_the_file_holds_for_labels_with_units(
    tmp_path: Path, generate, texts: list[str], numbers: list[float]
) -> None:
    write(tmp_path, texts * 20)
    settings = SETTINGS.model_copy(update={"csv": CsvSettings(decimal=",")})
    first = read_first_rows(settings, [str(tmp_path / "0.csv")])
    assert first.columns["price"].to_pylist() == pytest.approx(numbers * 20)
    found = generate(tmp_path, label="price", task="regression", csv={"decimal": ","})
    examples = [example for split in found.values() for example in split]
    labels = [example.features.feature["price"].float_list.value[0] for example in examples]
    assert sorted(labels) == pytest.approx(sorted(numbers * 20))


def test_points_of_thousands_in_labels_need_a_decimal_comma(tmp_path: Path, read_error) -> None:
    write(tmp_path, ["22.500 €", "1.900 €"])
    message = read_error(tmp_path, label="price", task="regression")
    assert 'If the point separates thousands, write `data.csv: {decimal: ","}`, or' in message


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
    assert kinds[0].label_number_format == kinds[1].label_number_format


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
    given = Input((str(tmp_path / "0.csv"),), "csv", extra_columns={"price": ColumnKind.FLOAT})
    (block,) = read_blocks(given, interface)
    assert block.rows is not None
    assert block.rows.column("price").to_pylist() == [[1200.5], [12.0], [-0.5]]


LABELS = "key,label\n"
SPLITS = ("train", "eval")


def write_rows(folder: Path, rows: int = 60, key: Any = str) -> Path:
    """A CSV file of keys and numbers."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{key(number)},{number / 2}\n" for number in range(rows))
    (folder / "rows.csv").write_text(f"key,x\n{lines}")
    return folder


def write_labels(path: Path, rows: range, label: int | None = None) -> None:
    path.parent.mkdir(exist_ok=True)
    chosen = [number % 2 if label is None else label for number in rows]
    lines = "".join(f"{n},{value}\n" for n, value in zip(rows, chosen, strict=True))
    path.write_text(LABELS + lines)


def values(examples: dict[str, Any]) -> dict[float, Any]:
    """The labels by the number in their row."""
    features = [e.features.feature for split in examples.values() for e in split]
    return {
        f["x"].float_list.value[0]: [*f["label"].int64_list.value, *f["label"].bytes_list.value]
        for f in features
    }


def labels_of(path: Path, key: str = "key") -> dict[str, Any]:
    return {"labels": {"path": str(path), "key": key}, "unlabelled": "skip"}


def test_rows_get_their_labels_and_those_without_are_counted(tmp_path, execute, read_split):
    rows = write_rows(tmp_path / "rows")
    write_labels(tmp_path / "labels" / "1.csv", range(50))
    write_labels(tmp_path / "labels" / "2.csv", range(40, 44), label=7)  # Corrected later.
    write_labels(tmp_path / "labels" / "3.csv", range(900, 950))  # Of rows elsewhere.
    examples = execute(rows, **labels_of(tmp_path / "labels"))
    found = values(
        {s: [tf.train.Example.FromString(e) for e in read_split(examples, s)] for s in SPLITS}
    )
    right = {n / 2: [7 if 40 <= n < 44 else n % 2] for n in range(50)}
    assert found == right
    (note,) = [n for n in read_notes(examples).sentences if "label" in n]
    assert note.startswith(f"left out 10 rows without a label in {tmp_path / 'labels'}, first")
    assert note.endswith(f"first row 52 of {rows / 'rows.csv'}")


def test_keys_are_compared_as_text(tmp_path, generate):
    """A file of whole numbers and one of text may hold the same keys."""
    rows = write_rows(tmp_path / "rows")
    keys = pa.array([str(number) for number in range(60)])
    table = pa.table({"key": keys, "label": ["no", "yes"] * 30, "other": range(60)})
    pq.write_table(table, tmp_path / "labels.parquet")
    found = values(generate(rows, **labels_of(tmp_path / "labels.parquet")))
    assert found == {n / 2: [[b"no"], [b"yes"]][n % 2] for n in range(60)}


def test_labels_in_csv_may_have_decimal_commas(tmp_path, generate):
    """The rows are of a format that has no such settings."""
    config = PipelineConfig.model_validate(
        {
            "name": "prices",
            "task": "regression",
            "data": {
                "format": "parquet",
                "path": str(tmp_path),
                "label": "label",
                "labels": {"path": str(tmp_path / "labels.csv"), "key": "key"},
                "csv": {"decimal": ","},
            },
        }
    )
    assert list(csv_is_the_format(config.data)) == []
    (tmp_path / "rows").mkdir()
    numbers = [n / 2 for n in range(60)]
    table = pa.table({"key": range(60), "x": numbers})
    pq.write_table(table, tmp_path / "rows" / "rows.parquet")
    (tmp_path / "labels.csv").write_text("key;label\n" + "".join(f"{n};{n},5\n" for n in range(60)))
    found = generate(
        tmp_path / "rows",
        "parquet",
        csv={"decimal": ","},
        task="regression",
        **labels_of(tmp_path / "labels.csv"),
    )
    features = [e.features.feature for split in found.values() for e in split]
    assert sorted(f["label"].float_list.value[0] for f in features) == [n + 0.5 for n in range(60)]


def test_file_that_is_named_may_have_any_name(tmp_path):
    """Such as those that a glob reads otherwise, or leaves out."""
    for name in ("labels[1].csv", "_labels.csv"):
        write_labels(tmp_path / name, range(3))
        assert find_label_files(str(tmp_path / name)) == [str(tmp_path / name)]


def test_requests_get_labels_by_their_id_which_is_no_data(tmp_path, generate):
    ids = [f"r{number}" for number in range(60)]
    table = pa.table({"x": [n / 2 for n in range(60)], "request_id": ids, "model_version": ids})
    (tmp_path / "rows").mkdir()
    marked = table.replace_schema_metadata(mark_own(["request_id", "model_version"]))
    pq.write_table(marked, tmp_path / "rows" / "08-0000-000000.parquet")
    lines = "".join(f'{{"request_id": "r{n}", "label": {n % 3}}}\n' for n in range(60))
    (tmp_path / "labels.jsonl").write_text(lines)
    chosen = labels_of(tmp_path / "labels.jsonl", "request_id")
    found = generate(tmp_path / "rows", "parquet", **chosen)
    assert values(found) == {n / 2: [n % 3] for n in range(60)}
    (names,) = {frozenset(e.features.feature) for split in found.values() for e in split}
    assert names == {"x", "label"}


def test_what_cannot_be_joined_is_refused(tmp_path, refusal):
    rows = write_rows(tmp_path / "rows")
    write_labels(tmp_path / "labels.csv", range(60))
    assert refusal(rows, **labels_of(tmp_path / "labels.csv", "id")) == (
        f"data.labels.key: {rows}/rows.csv has no column 'id'; its columns are key, x."
    )
    (tmp_path / "other.csv").write_text("key,answer\n1,2\n")
    assert "other.csv has no column 'label'; its columns are answer, key." in refusal(
        rows, **labels_of(tmp_path / "other.csv")
    )
    (tmp_path / "labels.txt").touch()
    assert (
        "labels.txt has an unknown format; the name of a file of labels must end with"
        in refusal(rows, **labels_of(tmp_path / "labels.txt"))
    )
    assert "'label' is missing in all 60 rows" in refusal(
        write_rows(rows, key=lambda n: n + 1000), **labels_of(tmp_path / "labels.csv")
    )


def test_labels_in_the_rows_as_well_are_refused(tmp_path, refusal):
    write_labels(tmp_path / "rows" / "rows.csv", range(60))
    message = refusal(tmp_path / "rows", **labels_of(tmp_path / "rows"))
    assert "has a column 'label', but data.labels takes this label from other" in message


def test_keys_that_are_fractions_are_refused(tmp_path, refusal):
    rows = write_rows(tmp_path / "rows", key=lambda n: n + 0.5)
    write_labels(tmp_path / "labels.csv", range(60))
    message = refusal(rows, **labels_of(tmp_path / "labels.csv"))
    assert "column 'key' of" in message
    assert "contains fractions" in message


def test_rows_of_several_blocks_get_their_labels(tmp_path):
    rows = 70_000
    (tmp_path / "rows").mkdir()
    numbers = pa.array(range(rows))
    pq.write_table(pa.table({"key": numbers, "x": numbers}), tmp_path / "rows" / "a.parquet")
    backwards = numbers.take(pa.array(range(rows - 1, -1, -1)))
    pq.write_table(pa.table({"key": backwards, "label": backwards}), tmp_path / "labels.parquet")
    settings = ExampleGenSettings(
        format="parquet", label="label", task="regression", **labels_of(tmp_path / "labels.parquet")
    )
    source = make_source(settings)
    files = (str(tmp_path / "rows" / "a.parquet"),)
    batches = list(source.read(files, source.peek(files)))
    assert sum(batch.rows.num_rows for batch in batches) == rows
    for batch in batches:
        assert batch.rows["label"].flatten().equals(batch.rows["x"].flatten())
