"""Pictures are read for a model as they are for its training."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image
from served_pictures import encode, example

from components.serving.batch.reading import Input, find_files, read_blocks
from trainer_module.errors import ConfigError, DataError
from trainer_module.export.interface import ModelInterface, RawColumn


def of_pictures(origin: str, *others: RawColumn) -> ModelInterface:
    """A model that takes a picture, which its training data held so."""
    picture = RawColumn("photo", "photo", "string", False, 1, origin)
    return ModelInterface((picture, *others), "shade", "string", "multiclass")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, shade in (("b.png", 20), ("a/c.webp", 200), ("a/d.png", 90)):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), shade).save(path)
    return tmp_path / "photos"


def test_pictures_of_a_folder_are_read_in_the_order_of_their_names(folder: Path) -> None:
    files, data_format = find_files(str(folder))
    assert data_format == "images"
    (block,) = read_blocks(Input(files, data_format, kept=("file",)), of_pictures("bytes"))
    names = [Path(name).name for name in block.kept["file"].to_pylist()]
    assert names == ["c.webp", "d.png", "b.png"]
    pictures = [value[0] for value in block.rows.column("photo").to_pylist()]
    assert pictures[2] == (folder / "b.png").read_bytes()
    # TensorFlow does not decode the other format: it became a PNG, as in training.
    assert pictures[0].startswith(b"\x89PNG")


def test_pictures_that_a_table_names_are_read(folder: Path) -> None:
    table = folder / "in.csv"
    table.write_text("id,photo\n7,b.png\n8,a/d.png\n")
    (block,) = read_blocks(Input((str(table),), "csv", kept=("id",)), of_pictures("path"))
    assert block.kept["id"].to_pylist() == ["7", "8"]
    assert block.rows.column("photo")[1].as_py() == [(folder / "a/d.png").read_bytes()]
    table.write_text("id,photo\n7,b.png\n8,in.csv\n")
    message = r"names .*in\.csv in row 3 of .*which cannot be decoded .*, or remove the row\.$"
    with pytest.raises(DataError, match=message):
        list(read_blocks(Input((str(table),), "csv"), of_pictures("path")))


def test_pictures_of_too_many_pixels_are_named(folder: Path) -> None:
    """Before they are decoded: in files of their own, in tables and in TFRecords."""
    large = "of 5 x 4 pixels, more than the 16 that max_pixels allows"
    encoded = encode(size=(5, 4))
    (folder / "a" / "d.png").write_bytes(encoded)
    files, data_format = find_files(str(folder))
    with pytest.raises(
        DataError, match=rf"Image .*d\.png cannot be decoded \(it is a PNG {large}\)"
    ):
        list(read_blocks(Input(files, data_format, max_pixels=16), of_pictures("bytes")))
    table = folder / "in.csv"
    table.write_text("photo\nb.png\na/d.png\n")
    with pytest.raises(DataError, match=rf"names .*d\.png in row 3 of .* \(it is a PNG {large}\)"):
        list(read_blocks(Input((str(table),), "csv", max_pixels=16), of_pictures("path")))
    rows = pa.table({"photo": [encode(), encoded]})
    pq.write_table(rows, folder / "in.parquet")
    given = Input((str(folder / "in.parquet"),), "parquet", max_pixels=16)
    with pytest.raises(DataError, match=rf"'photo' holds no .* in row 2 of .* PNG {large}"):
        list(read_blocks(given, of_pictures("bytes")))
    records = str(folder / "in.tfrecord")
    with tf.io.TFRecordWriter(records) as writer:
        for photo in (encode(), encoded):
            writer.write(example(photo))
    with pytest.raises(DataError, match=rf"'photo' of record 2 of .*in\.tfrecord .* PNG {large}"):
        list(read_blocks(Input((records,), "tfrecord", max_pixels=16), of_pictures("bytes")))
    list(read_blocks(Input((records,), "tfrecord"), of_pictures("bytes")))


def test_pictures_for_a_model_that_takes_more_are_refused(folder: Path) -> None:
    price = RawColumn("price", "price", "float32", False, 1)
    files, data_format = find_files(str(folder))
    with pytest.raises(ConfigError, match="the model takes photo and price: give it a table"):
        list(read_blocks(Input(files, data_format), of_pictures("bytes", price)))
    (folder / "b.png").write_bytes(b"none")
    with pytest.raises(DataError, match=r"Image .*b\.png cannot be decoded .*, or remove it\.$"):
        list(read_blocks(Input(files, data_format), of_pictures("bytes")))


def test_rows_are_read_for_a_task_that_has_options(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age\n7\n")
    column = RawColumn("age", "age", "float32", False, 1)
    interface = ModelInterface((column,), "grade", "string", "ordinal")
    (block,) = read_blocks(Input((str(tmp_path / "rows.csv"),), "csv"), interface)
    assert block.rows is not None
    assert block.rows.column("age").to_pylist() == [[7.0]]
