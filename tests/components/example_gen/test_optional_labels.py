"""Rows of a task that needs no label: those without one are read, and all of one class."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import tensorflow as tf

from components.example_gen.first_look.tables import look_at_table
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources import make_source
from components.example_gen.sources.base import merge_surveys
from trainer_module.errors import DataError

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
    assert look_at_table(settings_of(data_format), [str(file)]) == {"name", "label"}


def test_a_label_that_is_needed_or_named_has_to_be_there(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("name\nx\ny\n")
    for settings in (
        settings_of("csv", task={"conditional": True}, may_lack_label=False),
        settings_of("csv", label="digit", may_lack_label=False),
    ):
        with pytest.raises(DataError, match=f"There is no label column '{settings.label}'"):
            look_at_table(settings, [str(file)])


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
        look_at_table(settings_of("csv"), files)
    look_at_table(settings_of("csv", unlabelled="skip"), files)
