"""Pictures in a folder: their classes are subfolders, parts of their names, or a table's column."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_types import holds_bytes
from components.example_gen.checks.report import constant_label_error
from components.example_gen.conversions import python_command
from components.example_gen.files import MAGIC_BYTES, kind_of_file
from components.example_gen.first_look import FirstRows
from components.example_gen.paths import (
    PICTURE_EXTENSIONS,
    find_class_folders,
    unsorted_pictures_error,
)
from pipeline.first_config.found_data import EVAL_WORDS, TRAIN_WORDS, FoundData, find_splits
from trainer_module.errors import DataError, counted

TABLE = "pictures.csv"
"""The name of the table that `init` writes if the names of pictures contain their classes."""
_FORMAT = "images"
_CLASS_FIRST = re.compile(r"(.*?[^\W\d_])[\W\d_]+")
"""The pattern of a name that begins with its class, such as cat.12 or great_dane_3."""
_CLASS_LAST = re.compile(r"[\W\d_]+([^\W\d_].*)")
"""The pattern of a name that ends with its class, such as 0012_cat."""
_MIN_PICTURES = 5
"""The minimum average number of pictures of a class that is a part of names."""
_SAMPLE = 50
"""The number of values from which is decided whether a column names or holds pictures."""


_NO_CLASSES = {"images", "imgs", "masks", "labels", "annotations", "inputs", "targets"}
"""The names of folders of pictures that belong together, as in a segmentation."""
_MAX_FOLDERS = 100
"""The maximum number of folders in which the pictures of a table are looked for."""


def find_pictures(folder: Path, pictures: Sequence[str]) -> FoundData:
    """Returns the pictures in a folder as data.

    Args:
      pictures: the paths of its pictures, relative to the folder.

    Raises:
      DataError: the classes of the pictures are not clear.
    """
    depths = Counter(path.count("/") for path in pictures)
    ((depth, count),) = depths.most_common(1)
    if count < len(pictures):
        other = next(path for path in pictures if path.count("/") != pictures[0].count("/"))
        raise DataError(
            f"{folder} has {counted(len(pictures), 'picture')} at different depths, such as"
            f" {pictures[0]} and {other}:"
            " move them into one folder per class, or write a glob such as"
            f" data.path: {folder}/*/*."
        )
    tops = {path.split("/", 1)[0].lower(): path.split("/", 1)[0] for path in pictures}
    are_splits = tops.keys() <= {*TRAIN_WORDS, *EVAL_WORDS}
    if depth == 0:
        return _by_names(folder, pictures)
    if depth == 1 and are_splits:
        top = tops[next(word for word in (*TRAIN_WORDS, *EVAL_WORDS) if word in tops)]
        below = [path.split("/", 1)[1] for path in pictures if path.startswith(f"{top}/")]
        return _by_names(folder / top, below)
    classes = len({path.split("/")[-2] for path in pictures})
    if depth and classes == 1:
        raise constant_label_error("label", repr(pictures[0].split("/")[-2]))
    if {path.split("/")[-2].lower() for path in pictures} <= _NO_CLASSES:
        raise DataError(
            f"The folders of {pictures[0]} and {pictures[-1]} are no classes: move the pictures of"
            " each class into a folder named after the class, or write a table with a column for"
            " each kind of pictures; no task predicts pictures."
        )
    if depth == 1:
        return FoundData(_FORMAT, str(folder), (), classes=classes, pictures=count)
    if depth == 2 and (splits := find_splits({w: f"{top}/*/*" for w, top in tops.items()})):
        return FoundData(_FORMAT, str(folder), (), splits, classes=classes, pictures=count)
    path = find_class_folders(folder) or str(folder)
    note = f"the folders of the classes are below {folder}, in {path}"
    return FoundData(_FORMAT, path, (), notes=(note,), classes=classes, pictures=count)


def _by_names(folder: Path, pictures: Sequence[str]) -> FoundData:
    """Returns a table of the pictures, whose names contain their classes."""
    stems = [Path(picture).stem for picture in pictures]
    for pattern in (_CLASS_FIRST, _CLASS_LAST):
        matches = [pattern.fullmatch(stem) for stem in stems]
        classes = Counter(match[1].rstrip("._- ") for match in matches if match)
        if not all(matches) or len(classes) < 2:
            continue
        if len(pictures) < _MIN_PICTURES * len(classes):
            continue
        rows = io.StringIO()
        writer = csv.writer(rows, lineterminator="\n")
        writer.writerow(["picture", "label"])
        for picture, match in zip(pictures, matches, strict=True):
            writer.writerow([picture, match[1].rstrip("._- ") if match else ""])
        features = {"picture": {"type": "image", "from": "path", "folder": str(folder)}}
        shown = ", ".join(name for name, _ in classes.most_common(3))
        note = f"{TABLE} lists the pictures with the classes in their names, such as {shown}"
        return FoundData("csv", TABLE, (), {}, features, rows.getvalue(), (note,))
    raise unsorted_pictures_error(str(folder))


def find_path_columns(rows: FirstRows, table: Path) -> dict[str, str]:
    """Returns the columns with the paths of pictures, each with the folder of the paths.

    Args:
      rows: the first rows of the table.
      table: the file of the table.

    Raises:
      DataError: a column names pictures that are nowhere near the table.
    """
    subfolders = sorted(path for path in table.parent.iterdir() if path.is_dir())
    bases = [table.parent, *subfolders[:_MAX_FOLDERS], Path()]
    columns = {}
    for name, values in rows.columns.items():
        paths = _sample(values)
        if not paths or not all(path.lower().endswith(PICTURE_EXTENSIONS) for path in paths):
            continue
        base = max(bases, key=lambda base: sum((base / path).is_file() for path in paths))
        absent = [path for path in paths if not (base / path).is_file()]
        if len(absent) == len(paths):
            raise DataError(
                f"Column {name!r} of {table} names pictures such as {paths[0]!r}, which are not in"
                f" {table.parent}: move the pictures or the table there, or write features:"
                f" {{{name}: {{type: image, from: path, folder: ...}}}}."
            )
        if absent:
            raise DataError(
                f"Column {name!r} of {table} names {absent[0]!r}, which is not in {base}, although"
                f" {len(paths) - len(absent)} of the first {counted(len(paths), 'picture')} are:"
                " add the picture, or remove its row."
            )
        columns[name] = "" if base == table.parent else str(base)
    return columns


def check_no_stems(rows: FirstRows, table: Path, pictures: Sequence[str]) -> None:
    """Raises DataError if a column names pictures without the endings of their names.

    Args:
      rows: the first rows of the table.
      table: the file of the table.
      pictures: the paths of the pictures, relative to the folder of the table.
    """
    files = {Path(picture).stem: Path(picture) for picture in pictures}
    for name, values in rows.columns.items():
        stems = _sample(values)
        if not stems or not all(stem in files for stem in stems):
            continue
        file = files[stems[0]]
        folder = "" if str(file.parent) == "." else f"{file.parent}/"
        column, before, after = (
            json.dumps(text, ensure_ascii=False) for text in (name, folder, file.suffix)
        )
        source, target = (json.dumps(str(path)) for path in (table, table.with_name(TABLE)))
        code = (
            f"import pandas; t = pandas.read_csv({source}, dtype=str);"
            f" t[{column}] = {before} + t[{column}] + {after}; t.to_csv({target}, index=False)"
        )
        raise DataError(
            f"Column {name!r} of {table} names pictures such as {file} without {file.suffix}: write"
            f" a table of their paths by `{python_command(code)}`, and name"
            f" {table.with_name(TABLE)}."
        )


def find_encoded(rows: FirstRows) -> list[str]:
    """Returns the columns whose values are encoded pictures."""
    return [
        name
        for name, values in rows.columns.items()
        if holds_bytes(values.type)
        and (heads := values.drop_null().slice(0, _SAMPLE).to_pylist())
        and all("image" in kind_of_file(head[:MAGIC_BYTES]) for head in heads)
    ]


def _sample(values: pa.Array) -> list[str]:
    """Returns the first values of a column of text; no values of other columns."""
    if not holds_bytes(values.type):
        return []
    first = values.drop_null().slice(0, _SAMPLE)
    is_short = pc.max(pc.binary_length(first)).as_py()
    if not len(first) or is_short > 1_000:
        return []
    return [value.decode(errors="replace") for value in first.to_pylist()]
