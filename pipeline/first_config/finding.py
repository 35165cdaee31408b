"""The search for the data at a path: a file, a glob, or a folder of files or pictures."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from glob import escape
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from components.example_gen.formats import FORMATS, format_by_name
from components.example_gen.idx_files import pair_files
from components.example_gen.paths import (
    find_neighbours,
    is_hidden,
    is_remote,
    no_file_error,
    resolve_input,
)
from components.example_gen.picture_files import is_picture, is_system_name
from components.example_gen.undeclared import columns_of, detect_format
from pipeline.config.issues import near_match
from pipeline.first_config.beginnings import read_beginning
from pipeline.first_config.found_data import FoundData, find_splits
from pipeline.first_config.pictures import (
    check_no_stems,
    find_path_columns,
    find_pictures,
)
from pipeline.first_config.texts import check_no_texts
from trainer_module.errors import DataError, counted, enumerate_names

MAX_FILES = 50_000
"""The maximum number of files of a folder that are listed."""
_MAX_DEPTH = 5
_MAX_COMPARED = 50
"""The maximum number of files whose columns are compared."""
_TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".data")
_SHOWN = 5


def find_data(path: str) -> FoundData:
    """Returns the data at a path.

    Raises:
      DataError: there is no data, its files cannot be read, or several kinds of data are mixed.
    """
    check_path(path)
    place = Path(path)
    if place.is_dir():
        return _in_folder(place)
    if place.is_file():
        return _of_file(place)
    files = _matching_files(path)
    if files and all(is_picture(str(file)) for file in files):
        classes = len({file.parent.name for file in files})
        return FoundData("images", path, (), classes=classes, pictures=len(files))
    if files:
        return _of_files(path, files)
    base, pattern = resolve_input(path, "csv")
    raise no_file_error(path, find_neighbours(Path(base), pattern), "the path")


def check_path(path: str) -> None:
    """Raises DataError if a path is remote, or is no file or folder and has no wildcards."""
    if is_remote(path):
        raise _remote(path)
    place = Path(path)
    has_wildcards = any(character in path for character in "*?[")
    if not (has_wildcards or place.is_dir() or place.is_file()):
        raise _no_path(place)


def _remote(path: str) -> DataError:
    if path.startswith(("http://", "https://")):
        return DataError(
            f"{path} is a page of the web: download it, for example by `curl -LO"
            f" {shlex.quote(path)}`, and name the file."
        )
    return DataError(
        f"{path} is remote: copy a part of the data to this machine, and name the copy; then"
        f" write data.path: {path} into the config."
    )


def _no_path(place: Path) -> DataError:
    if place.exists() or str(place) in _STDIN:
        return DataError(f"{place} is a pipe or a device: write the data into a file, and name it.")
    if place.is_symlink():
        return DataError(f"{place} links to {place.readlink()}, which does not exist: correct it.")
    siblings = [entry.name for entry in islice(_entries(place.parent), MAX_FILES)]
    hint = f"; {near_match(place.name, siblings)}" if siblings else "."
    return DataError(f"{place}: there is no such file or folder{hint}")


_STDIN = ("-", "/dev/stdin")


def _matching_files(path: str) -> list[Path]:
    base, pattern = resolve_input(path, "csv")
    return sorted(f for f in Path(base).glob(pattern) if f.is_file() and not is_hidden(f.name))


def _entries(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (entry for entry in folder.iterdir() if not is_hidden(entry.name))


def _of_file(file: Path) -> FoundData:
    if file.suffix.lower() in (".yaml", ".yml"):
        raise DataError(f"{file} is a config, not data: run it by `run {file}`, or name the data.")
    data_format = detect_format(str(file))
    if data_format == "idx":
        return _idx(file.parent, list(_entries(file.parent)))
    by_name, notes = format_by_name(file.name), list[str]()
    if by_name not in (None, data_format):
        notes.append(f"the content of {file} is {data_format}, although its name means {by_name}")
    return FoundData(data_format, escape(str(file)), (str(file),), notes=tuple(notes))


def _of_files(path: str, files: Sequence[Path]) -> FoundData:
    """Returns files of one format, which a path with wildcards or a folder contains."""
    formats = {file: detect_format(str(file)) for file in files[:_MAX_COMPARED]}
    kinds = sorted(set(formats.values()))
    if len(kinds) > 1:
        shown = ", ".join(f"{file.name} ({kind})" for file, kind in list(formats.items())[:_SHOWN])
        raise DataError(
            f"{path} holds files of {enumerate_names(kinds, 'and')}, such as {shown}: name one"
            " file, or a glob such as data/*.csv."
        )
    _check_columns(kinds[0], path, files)
    return FoundData(kinds[0], path, tuple(map(str, files)))


def _check_columns(data_format: str, path: str, files: Sequence[Path]) -> None:
    """Raises DataError if files of a table have different columns."""
    if FORMATS[data_format].may_lack_columns or data_format == "tfrecord":
        return
    columns = {file: columns_of(data_format, str(file)) for file in files[:_MAX_COMPARED]}
    first, expected = next(iter(columns.items()))
    for file, names in columns.items():
        if names != expected:
            raise DataError(
                f"{path} holds tables with different columns, such as {first.name} and {file.name}:"
                f" name one file, such as {first}."
            )


def _in_folder(folder: Path) -> FoundData:
    files = list(islice(_walk(folder), MAX_FILES))
    pictures = [file for file in files if is_picture(file)]
    others = [file for file in files if not is_picture(file)]
    tables = [file for file in others if file.lower().removesuffix(".gz").endswith(_TABLES)]
    if pictures:
        top = [file for file in tables if "/" not in file and not file.lower().endswith(".txt")]
        return (
            _with_table(folder, top[0], pictures)
            if len(top) == 1
            else find_pictures(folder, pictures)
        )
    check_no_texts(folder, tables)
    if tables:
        return _tables(folder, tables)
    if others:
        return _others(folder, others)
    raise DataError(
        f"{folder} contains no data: expected files such as rows.csv, or a subfolder of pictures"
        " for each class."
    )


def _with_table(folder: Path, name: str, pictures: Sequence[str]) -> FoundData:
    """Returns a table that names pictures, or the pictures if the table does not name them."""
    data = _of_file(folder / name)
    if FORMATS[data.format].names_pictures:
        with TemporaryDirectory() as scratch:
            rows = read_beginning(data, Path(scratch)).rows
        if find_path_columns(rows, folder / name):
            return data
        check_no_stems(rows, folder / name, pictures)
    try:
        return find_pictures(folder, pictures)
    except DataError:
        raise DataError(
            f"{folder} contains {name} and pictures, but no column of {name} names the pictures:"
            f" name the table alone by {folder / name}, or write a column with the path of each"
            " picture."
        ) from None


def _walk(folder: Path) -> Iterator[str]:
    """Yields the visible files in a folder and its subfolders, relative to the folder."""
    for root, folders, files in os.walk(folder):
        place = Path(root).relative_to(folder)
        is_deep = len(place.parts) >= _MAX_DEPTH
        folders[:] = [] if is_deep else sorted(f for f in folders if not _is_skipped(f))
        yield from ((place / name).as_posix() for name in sorted(files) if not _is_skipped(name))


def _is_skipped(name: str) -> bool:
    """Returns whether a file or folder is no data: it is hidden, of the system, or of runs."""
    return is_hidden(name) or is_system_name(name) or name == "output"


def _tables(folder: Path, tables: Sequence[str]) -> FoundData:
    """Returns the tables in a folder as data: one file, files of splits, or all of them."""
    if len(tables) == 1:
        return _of_file(folder / tables[0])
    depths = {file.count("/") for file in tables}
    endings = {Path(file.lower().removesuffix(".gz")).suffix for file in tables}
    if len(depths) > 1 or len(endings) > 1:
        raise DataError(
            f"{folder} holds files of different kinds, such as {', '.join(tables[:_SHOWN])}: name"
            f" one file, such as {folder / tables[0]}, or a glob such as {folder}/*.csv."
        )
    names = {_first_word(file): _split_glob(file) for file in tables}
    files = [folder / file for file in tables]
    if splits := find_splits(names):
        train, evaluated = sorted(folder.glob(splits["train"])), sorted(folder.glob(splits["eval"]))
        data_format = detect_format(str(train[0]))
        if _have_same_columns(data_format, train[0], evaluated[0]):
            return FoundData(data_format, str(folder), tuple(map(str, train)), splits)
        note = f"{evaluated[0].name} is left out, as its columns differ from {train[0].name}"
        data = _of_files(str(folder / splits["train"]), train)
        path = str(train[0]) if len(train) == 1 else data.path
        return FoundData(data.format, path, data.files, notes=(note,))
    pattern = "/".join(["*"] * depths.pop() + [f"*{endings.pop()}*"])
    return _of_files(str(folder / pattern), files)


def _have_same_columns(data_format: str, one: Path, other: Path) -> bool:
    if data_format == "tfrecord":
        return True
    return columns_of(data_format, str(one)) == columns_of(data_format, str(other))


def _first_word(file: str) -> str:
    """Returns the first word of a file's name, or of its folder, in lower case."""
    top = file.split("/", 1)[0].lower()
    return re.split(r"[\W_\d]+", top.removesuffix(".gz").split(".")[0], maxsplit=1)[0]


def _split_glob(file: str) -> str:
    """Returns the glob of the files of the same split, such as `train*.csv` or `train/*.csv`."""
    ending = f"*{Path(file.lower().removesuffix('.gz')).suffix}*"
    top, slash, _ = file.partition("/")
    return f"{top}/{ending}" if slash else f"{top[: len(_first_word(file))]}{ending}"


def _others(folder: Path, files: Sequence[str]) -> FoundData:
    """Returns files whose names have no ending of tables: IDX or TFRecord files."""
    places = [folder / file for file in files]
    formats = {detect_format(str(place)) for place in places[:_MAX_COMPARED]}
    if formats == {"idx"}:
        return _idx(folder, places)
    if formats == {"tfrecord"} and not any("/" in file for file in files):
        splits = find_splits({_first_word(file): f"{_first_word(file)}*" for file in files})
        shown = sorted(folder.glob(splits["train"])) if splits else places
        return FoundData("tfrecord", str(folder), tuple(map(str, shown)), splits)
    raise DataError(
        f"{folder} holds {counted(len(files), 'file')}, such as {', '.join(files[:_SHOWN])}: name"
        f" one of these files, such as {places[0]}."
    )


def _idx(folder: Path, files: Sequence[Path]) -> FoundData:
    pair_files([str(file) for file in files if file.is_file()])
    words = {_first_word(file.name): file.name for file in files}
    globs = {word: f"{name[: len(word)]}*" for word, name in words.items()}
    if "t" in globs:  # MNIST names the files of its eval split t10k.
        globs["test"] = "t10k*"
    return FoundData("idx", str(folder), (), find_splits(globs))
