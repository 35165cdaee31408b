"""The conversion of a user's path to TFX's input base and split pattern.

TFX supports the placeholders {SPAN}, {VERSION}, {YYYY}, {MM} and {DD}. Scopeline adds {HH}, which
makes each hour a span. The module does not import TensorFlow.
"""

from __future__ import annotations

import difflib
import glob
import posixpath
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from components.example_gen.formats import FORMATS, format_by_name
from trainer_module.errors import DataError, enumerate_names

SPAN, VERSION, HOUR = "SPAN", "VERSION", "HH"
DATE = ("YYYY", "MM", "DD")
NAMES = (SPAN, VERSION, *DATE, HOUR)

HOURS_A_DAY = 24
"""The number of hours in a day. The number of an hourly span is the number of hours since 1970, and
TFX's number of a daily span is the number of days."""

PLACEHOLDER = re.compile(rf"\{{(?:(?:{SPAN}|{VERSION})(?::\d+)?|{'|'.join((*DATE, HOUR))})\}}")
"""The pattern of a placeholder. {SPAN:3} is a span with three digits."""
_BRACES = re.compile(r"\{([^{}/]*)\}")


def is_span_pattern(pattern: str) -> bool:
    """Returns whether the pattern contains {SPAN} or a placeholder of a date."""
    return not {SPAN, *DATE, HOUR}.isdisjoint(_names(pattern))


def is_dated(pattern: str) -> bool:
    """Returns whether the pattern's spans are days or hours."""
    return not {*DATE, HOUR}.isdisjoint(_names(pattern))


def is_hourly(pattern: str) -> bool:
    """Returns whether the pattern's spans are hours."""
    return HOUR in _names(pattern)


def pattern_fault(pattern: str) -> str | None:
    """Returns the first error in a pattern's placeholders, with a correction.

    The result is None if all placeholders are correct.
    """
    names = _names(pattern)
    for placeholder in _BRACES.findall(pattern):
        near = difflib.get_close_matches(placeholder.upper(), NAMES, n=1, cutoff=0.4)
        # Braces around a word that is not like a placeholder may be part of a file's name.
        if near and not PLACEHOLDER.fullmatch(f"{{{placeholder}}}"):
            return f"found {{{placeholder}}}; did you mean {{{near[0]}}}?"
    if repeated := [name for name in NAMES if names.count(name) > 1]:
        return f"found {{{repeated[0]}}} twice; write it once"
    parts = [name for name in (*DATE, HOUR) if name in names]
    if parts and SPAN in names:
        return f"found both {{{SPAN}}} and {{{parts[0]}}}; spans are either numbers or dates"
    if parts and (missing := [name for name in DATE if name not in names]):
        example = "{YYYY}-{MM}-{DD}/{HH}" if HOUR in parts else "{YYYY}-{MM}-{DD}"
        absent = enumerate_names([f"{{{name}}}" for name in missing], "and")
        return (
            f"found {{{parts[0]}}} without {absent}; expected {example}, or {{SPAN}} for numbered "
            "spans"
        )
    if VERSION in names and not is_span_pattern(pattern):
        return f"found {{{VERSION}}} without a span; add {{{SPAN}}} or {{YYYY}}-{{MM}}-{{DD}}"
    return None


def _names(pattern: str) -> list[str]:
    """Returns the names of the placeholders in order, without braces and numbers of digits."""
    return [match[0].strip("{}").split(":")[0] for match in PLACEHOLDER.finditer(pattern)]


PICTURE_EXTENSIONS = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp"),
    *(".tif", ".tiff", ".avif", ".jp2", ".ppm", ".pgm", ".pbm"),
)
LABEL_FORMATS = ("csv", "jsonl", "parquet")
"""The formats of files with labels that arrive after the rows."""
_WILDCARDS = re.compile(r"[*?\[{]")


def is_remote(path: str) -> bool:
    """Returns whether the path has a scheme, such as gs://bucket/data."""
    return "://" in path


def is_hidden(path: str) -> bool:
    """Returns whether the name begins with `.` or `_`, which marks files that are not data.

    A picture whose name begins with `_` is not hidden, as cameras use names such as _DSC0001.JPG.
    """
    name = posixpath.basename(path)
    is_marked = name.startswith("_") and not name.lower().endswith(PICTURE_EXTENSIONS)
    return is_marked or name.startswith(".")


def resolve_input(path: str, data_format: str) -> tuple[str, str]:
    """Returns TFX's `input_base` and split pattern for a file, folder or glob.

    A remote path is a folder only if it ends with a slash, as a request to the store would be slow.
    Local folders and files may have wildcards in their names: what exists is no glob.

    Args:
      data_format: a name in `FORMATS`, whose pattern selects the files in a folder.
    """
    fixed: list[str] = []
    rest, local = path.split("/"), None if is_remote(path) else Path(path)

    def is_folder(name: str) -> bool:
        return local is not None and Path("/".join([*fixed, name])).is_dir()

    while len(rest) > 1 and (not _WILDCARDS.search(rest[0]) or is_folder(rest[0])):
        fixed.append(rest.pop(0))
    base, pattern = "/".join(fixed), "/".join(rest)
    if not pattern or (local and local.is_dir()):
        base, pattern = path.rstrip("/") or "/", FORMATS[data_format].pattern
    elif local and local.is_file():
        pattern = glob.escape(pattern)
    return base or ("/" if fixed else "."), pattern


def literal(folder: str) -> str:
    """Returns a glob that matches only this folder."""
    return folder if is_remote(folder) else glob.escape(folder)


def check_files_exist(input_base: str, pattern: str) -> None:
    """Raises DataError if no local file matches the split pattern.

    Placeholders such as {SPAN} match any text. Remote paths are not checked.
    """
    if is_remote(input_base):
        return
    base, wildcards = Path(input_base), PLACEHOLDER.sub("*", pattern)
    if any(path.is_file() and not is_hidden(path.name) for path in base.glob(wildcards)):
        return
    if pattern == FORMATS["images"].pattern and any(
        path.name.lower().endswith(PICTURE_EXTENSIONS) for path in base.glob("*")
    ):
        raise unsorted_pictures_error(input_base)
    if pattern == FORMATS["images"].pattern and (deeper := find_class_folders(base)):
        raise DataError(
            f"No file matches {posixpath.join(input_base, pattern)!r}, but there are pictures in"
            f" folders below: write data.path: {deeper}"
        )
    raise no_file_error(posixpath.join(input_base, pattern), find_neighbours(base, wildcards))


_MAX_DEPTH = 5
"""The maximum number of folders between a path and its pictures that `find_class_folders` finds."""


def find_class_folders(base: Path) -> str | None:
    """Returns the path or glob of the pictures whose class folders are not right below a folder.

    Args:
      base: a local folder without pictures in its subfolders.

    Returns:
      The folder of the class folders, or a glob if there are several such folders. None if there
        are no pictures in deeper folders.
    """
    for depth in range(3, _MAX_DEPTH + 1):
        pictures = (path for path in base.glob("/".join("*" * depth)) if _is_picture(path))
        if folders := {path.parent.parent for path in islice(pictures, _MAX_FOUND)}:
            return str(folders.pop() if len(folders) == 1 else base / "/".join("*" * depth))
    return None


_MAX_FOUND = 10_000
"""The maximum number of pictures from which the folder of the class folders is determined."""


def _is_picture(path: Path) -> bool:
    return path.name.lower().endswith(PICTURE_EXTENSIONS) and not is_hidden(path.name)


def unsorted_pictures_error(folder: str) -> DataError:
    """Returns the error for a folder of pictures without subfolders for their classes."""
    upwards = ""
    if _is_class_folder(Path(folder)):
        parent = posixpath.dirname(folder.rstrip("/")) or "."
        upwards = f", or write data.path: {parent}, if its subfolders are the classes"
    return DataError(
        f"No file matches {posixpath.join(folder, FORMATS['images'].pattern)!r}, but {folder!r}"
        " contains pictures: move the pictures of each class into a subfolder named after the"
        f" class{upwards}. If the task needs no classes, write data.path: {folder}/*"
    )


def _is_class_folder(folder: Path) -> bool:
    """Returns whether all of the folders beside a folder of pictures contain pictures, too."""
    beside = [path for path in folder.absolute().parent.iterdir() if not is_hidden(path.name)]
    if not 2 <= len(beside) <= _MAX_CLASSES or not all(path.is_dir() for path in beside):
        return False
    return all(any(map(_is_picture, islice(path.iterdir(), _MAX_FOUND))) for path in beside)


_MAX_CLASSES = 1_000
"""The maximum number of folders that are looked at as classes."""


def find_neighbours(base: Path, glob: str) -> list[str]:
    """Returns the names of all visible files and folders in the folders that a glob searches."""
    parent = posixpath.dirname(glob)
    folders = [path for path in (base.glob(parent) if parent else [base]) if path.is_dir()]
    names = [path.name for folder in folders for path in folder.iterdir()]
    return [name for name in names if not is_hidden(name)]


def no_file_error(path: str, neighbours: Iterable[str] = (), key: str = "data.path") -> DataError:
    """Returns the error for a pattern that matches no file.

    Args:
      key: the config key or command-line option to correct.
    """
    names = sorted(neighbours)
    contents = "which does not exist or is empty"
    if names:
        near = difflib.get_close_matches(posixpath.basename(path), names, n=1)
        contents = f"which contains {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}"
        contents += f"; did you mean {near[0]!r}?" if near else ""
    return DataError(
        f"No file matches {path!r}: looked in {posixpath.dirname(path) or '.'!r}, {contents}"
        f"{'' if contents.endswith('?') else f'; correct {key}.'}"
    )


def find_label_files(path: str) -> list[str]:
    """Returns the files of labels, sorted by name.

    Args:
      path: a file, folder or glob.

    Raises:
      DataError: there is no file, or a file has an unknown format.
    """
    source = Path(path)
    if source.is_file():  # A single file may be hidden, and its name may look like a glob.
        label_format(path)
        return [path]
    pattern = "*" if source.is_dir() else source.name
    folder = source if source.is_dir() else source.parent
    files = [
        str(file)
        for file in sorted(folder.glob(pattern))
        if file.is_file() and not file.name.startswith((".", "_"))
    ]
    if not files:
        raise DataError(f"data.labels.path: no file matches {path!r}; correct the path.")
    for file in files:
        label_format(file)
    return files


def label_format(file: str) -> str:
    """Returns the format of a file of labels, by its name.

    Raises:
      DataError: the format is unknown.
    """
    file_format = format_by_name(file)
    if file_format not in LABEL_FORMATS:
        endings = (ending for name in LABEL_FORMATS for ending in FORMATS[name].endings)
        raise DataError(
            f"data.labels.path: {file} has an unknown format; the name of a file of labels must"
            f" end with {enumerate_names(endings, 'or')}."
        )
    return file_format
