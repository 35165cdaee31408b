"""Labels that come later, in files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.paths import find_label_files
from components.example_gen.sources import make_source
from components.example_gen.sources.parquet_source import mark_own
from pipeline.config.sections.data import csv_is_the_format
from pipeline.config.settings import PipelineConfig

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
    assert note.startswith(f"10 rows have no label in {tmp_path / 'labels'}, and are left out")
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
        f"data.labels.key: {rows}/rows.csv has no column 'id'; found key, x."
    )
    (tmp_path / "other.csv").write_text("key,answer\n1,2\n")
    assert "other.csv has no column 'label'; found answer, key." in refusal(
        rows, **labels_of(tmp_path / "other.csv")
    )
    (tmp_path / "labels.txt").touch()
    assert "labels.txt is of no known format; right are names that end in .csv" in refusal(
        rows, **labels_of(tmp_path / "labels.txt")
    )
    assert "'label' is missing in all 60 rows" in refusal(
        write_rows(rows, key=lambda n: n + 1000), **labels_of(tmp_path / "labels.csv")
    )


def test_labels_in_the_rows_as_well_are_refused(tmp_path, refusal):
    write_labels(tmp_path / "rows" / "rows.csv", range(60))
    message = refusal(tmp_path / "rows", **labels_of(tmp_path / "rows"))
    assert "has a column 'label', which data.labels takes from other files" in message


def test_keys_that_are_fractions_are_refused(tmp_path, refusal):
    rows = write_rows(tmp_path / "rows", key=lambda n: n + 0.5)
    write_labels(tmp_path / "labels.csv", range(60))
    message = refusal(rows, **labels_of(tmp_path / "labels.csv"))
    assert "column 'key' of" in message
    assert "holds fractions" in message


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
    batches = list(source.read(files, source.glance(files)))
    assert sum(batch.rows.num_rows for batch in batches) == rows
    for batch in batches:
        assert batch.rows["label"].flatten().equals(batch.rows["x"].flatten())
