"""Pictures named in tables are read with their rows, none from outside of their folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from PIL import Image

from components.example_gen.first_look import check_table
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.notes import read_notes
from components.example_gen.picture_files import folder_revision
from trainer_module.errors import DataError

TABLE = {"pattern": "*.csv", "label": "y", "task": "binary"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve pictures of different shades, and a table of their paths."""
    (tmp_path / "photos").mkdir()
    for number in range(12):
        picture = Image.new("L", (4, 4), 20 * number)
        picture.save(tmp_path / "photos" / f"{number}.{'gif' if number == 3 else 'png'}")
    Image.new("L", (4, 4)).save(tmp_path / "outside.png")
    write(tmp_path, [f"photos/{n}.{'gif' if n == 3 else 'png'}" for n in range(12)])
    return tmp_path


def write(folder: Path, paths: list[str]) -> None:
    rows = [f"{path},{number},{number % 2}" for number, path in enumerate(paths)]
    (folder / "table.csv").write_text("\n".join(["photo,age,y", *rows]))


def look(folder: Path, base: str = "") -> frozenset[str]:
    """What `plan` and `run` do before TFX is imported."""
    settings = ExampleGenSettings.model_validate(
        {"format": "csv", "label": "y", "task": "binary", "pictures": {"photo": base}}
    )
    return check_table(settings, [str(folder / "table.csv")])


def read(artifact: Any) -> list[tf.train.Example]:
    files = tf.io.gfile.glob(f"{artifact.uri}/Split-*/*")
    records = tf.data.TFRecordDataset(files, compression_type="GZIP")
    return [tf.train.Example.FromString(record.numpy()) for record in records]


def test_rows_have_the_pictures_of_their_paths(
    folder: Path, execute: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.example_gen.sources.pictures._BATCH_FILES", 5)
    artifact = execute(folder, pictures={"photo": ""}, **TABLE)
    shades = {}
    for example in read(artifact):
        features = example.features.feature
        pixels = tf.io.decode_image(features["photo"].bytes_list.value[0]).numpy()
        shades[features["age"].float_list.value[0]] = int(pixels[0, 0, 0])
    assert shades == {number: 20 * number for number in range(12)}
    assert any("1 picture" in note for note in read_notes(artifact).sentences)


def test_paths_are_relative_to_the_configured_folder(
    folder: Path, execute: Callable[..., Any]
) -> None:
    rows = [{"photo": f"{n}.png", "y": n % 2} for n in range(12) if n != 3]
    (folder / "tables").mkdir()
    (folder / "tables" / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pictures = {"photo": str(folder / "photos")}
    artifact = execute(folder / "tables", "jsonl", label="y", pictures=pictures)
    assert len(read(artifact)) == 11


BAD = {
    "photos/77.png": r"photos/77.png in row 4 of .*table.csv",
    "photos/../../x.png": "outside of",
    "/etc/hostname": "'/etc/hostname' in row 4 of .*outside of",
    "photos/link.png": "outside of",
}


@pytest.mark.parametrize("path", BAD)
def test_missing_picture_or_path_outside_of_the_folder_is_refused(folder: Path, path: str) -> None:
    (folder / "data").mkdir()
    (folder / "photos").rename(folder / "data" / "photos")
    (folder / "data" / "photos" / "link.png").symlink_to(folder / "outside.png")
    names = [f"photos/{n}.png" for n in (0, 1, 2, 4, 5)]
    write(folder / "data", [*names[:2], path, *names[2:]])
    with pytest.raises(DataError, match=BAD[path]):
        look(folder / "data")


@pytest.mark.slow
def test_rows_of_broken_pictures_may_be_left_out(folder: Path, execute: Callable[..., Any]) -> None:
    """Not those whose file is missing: the table is wrong then, and no file."""
    (folder / "photos" / "2.png").write_text("name,age")
    (folder / "photos" / "5.png").write_bytes(b"")
    options = {"pictures": {"photo": ""}, "on_bad_file": "skip", **TABLE}
    artifact = execute(folder, **options)
    ages = [e.features.feature["age"].float_list.value[0] for e in read(artifact)]
    assert sorted(ages) == [0, 1, 3, 4, 6, 7, 8, 9, 10, 11]
    (note,) = (note for note in read_notes(artifact).sentences if "broken" in note)
    assert note.startswith("2 broken pictures")
    assert "photos/5.png" in note
    (folder / "photos" / "4.png").unlink()
    with pytest.raises(DataError, match=r"4.png in row 6 of "):
        execute(folder, **options)


def test_changed_picture_changes_the_revision(folder: Path) -> None:
    before = folder_revision([str(folder)])
    assert folder_revision([str(folder)]) == before
    Image.new("L", (5, 5)).save(folder / "photos" / "2.png")
    assert folder_revision([str(folder)]) != before
