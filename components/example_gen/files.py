"""Opens local and remote files, and detects the kind of a file by its first bytes.

The module does not import TFX or Beam before it reads a remote file, as their import takes seconds.
"""

from __future__ import annotations

import codecs
import os
import posixpath
import re

import pyarrow as pa

from components.example_gen.conversions import kind_by_name, remedy
from components.example_gen.paths import is_remote
from trainer_module.errors import DataError


def open_file(file: str) -> pa.NativeFile:
    """Returns a stream of the bytes of a local or remote file."""
    if not is_remote(file):
        return pa.OSFile(file)
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    stream = FileSystems.open(file, compression_type=CompressionTypes.UNCOMPRESSED)
    return pa.PythonFile(stream, mode="r")


def open_stream(file: str) -> pa.NativeFile:
    """Returns a stream of the bytes of a file; a .gz file is decompressed.

    Reading from the stream of a damaged .gz file raises OSError.
    """
    stream = open_file(file)
    return pa.CompressedInputStream(stream, "gzip") if is_gzip(file) else stream


def exists(path: str) -> bool:
    """Returns whether a local or remote file or folder exists."""
    if not is_remote(path):
        return os.path.exists(path)
    from tfx.dsl.io import fileio

    return bool(fileio.exists(path))


def is_folder(path: str) -> bool:
    """Returns whether a local or remote path is a folder."""
    if not is_remote(path):
        return os.path.isdir(path)
    from tfx.dsl.io import fileio

    return bool(fileio.isdir(path))


def is_gzip(file: str) -> bool:
    """Returns whether the file's name ends in .gz."""
    return posixpath.splitext(file)[1].lower() == ".gz"


def unreadable_error(file: str, error: Exception) -> DataError:
    """Returns the error for a file that cannot be read."""
    reason = reason_of(error)
    if is_gzip(file):
        return DataError(
            f"{file} is not a complete gzip file ({reason}): copy or compress it again."
        )
    return DataError(f"{file} cannot be read ({reason}): copy or write it again.")


def reason_of(error: Exception) -> str:
    """Returns a library's error message on one line, without unprintable characters."""
    words = " ".join(str(error).split())
    return "".join(character if character.isprintable() else "?" for character in words)


MAGIC_BYTES = 40
"""The number of bytes at the beginning of a file from which its kind is detected."""
_BINARY_KINDS = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"RIFF": "a WebP image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"PK\x03\x04": "a zip archive, or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\x1f\x8b": "gzipped, without the ending .gz",
    b"BZh": "compressed by bzip2",
    b"(\xb5/\xfd": "compressed by Zstandard",
    b"\xfd7zXZ": "compressed by xz",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\xff\xff\xff\xff": "an Arrow stream",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"\x80\x03": "a Python pickle",
    b"\x80\x04\x95": "a Python pickle",
    b"\x80\x05\x95": "a Python pickle",
    b"\0\x05\x16\x07": "a file of macOS without data",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a NumPy array",
}
JSON_LINES = "JSON lines"
_TEXT_KINDS = {
    b"%pdf-": "a PDF",
    b"<!doctype": "an HTML page",
    b"<html": "an HTML page",
    b"<?xml": "an XML file",
    b"version https://git-lfs": "a pointer of Git LFS, without the file itself",
    b"matlab 5.0 mat": "a MATLAB file",
    b"matlab 7.3 mat": "a MATLAB file",
    b'{"': JSON_LINES,
}
_TEXT_PATTERNS = {
    re.compile(r"\[\s*([\[{]|$)"): "a JSON array",
    re.compile(r"\{\s*\n"): "a JSON object in several lines",
    re.compile(r"(%.*\n|\s)*@relation\b", re.IGNORECASE): "an ARFF file",
    re.compile(r"[+-]?[\d.]+([ \t]+\d+:[-+\d.eE]+)+[ \t]*\r?\n"): "a LIBSVM file",
}
"""The patterns of the beginnings of texts. A header may begin with a name such as [Date]."""
FORMATS_OF_KINDS = {"a Parquet file": "parquet", JSON_LINES: "jsonl"}
"""The values of `data.format` for the kinds that ExampleGen reads."""
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\f\r")


def kind_of_file(head: bytes) -> str:
    """Returns the kind of a file by its first bytes for messages, such as `a PNG image`.

    The result is an empty string for an unknown kind.
    """
    # A text file may begin with letters such as PAR1 or BZh, as in the header of a table.
    is_binary = not _CONTROL.isdisjoint(head)
    kinds = _BINARY_KINDS if is_binary else _TEXT_KINDS
    start = head if is_binary else head.lstrip().lower()
    return next((kind for magic, kind in kinds.items() if start.startswith(magic)), "")


def kind_of_text(text: str) -> str:
    """Returns the kind of a text by its beginning for messages, or an empty string."""
    start = text.lstrip("\ufeff \r\n\t")
    return next((kind for pattern, kind in _TEXT_PATTERNS.items() if pattern.match(start)), "")


_HEAD_BYTES = 4096
"""The number of bytes from which is decided whether a file is text."""
_MAX_CONTROL_SHARE = 0.05
"""The maximum share of control characters in a text, which may contain a few by mistake."""


def looks_like_text(head: bytes) -> bool:
    """Returns whether the first bytes of a file are not empty, have no NUL, and hardly any other
    control character.
    """
    return bool(head) and b"\0" not in head and not _is_binary(head)


def _is_binary(head: bytes) -> bool:
    """Returns whether many of the bytes are control characters. In UTF-16, which begins with a byte
    order mark, text has such bytes, too: 4 in each Cyrillic letter.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    # UTF-16 without a mark has a NUL in each Latin letter.
    control = sum(byte in _CONTROL for byte in head.replace(b"\0", b""))
    return control > _MAX_CONTROL_SHARE * len(head)


def read_head(file: str) -> bytes:
    """Returns the first bytes of a file; a .gz file is decompressed.

    Raises:
      DataError: the file cannot be read.
    """
    try:
        with open_stream(file) as stream:
            return bytes(stream.read(_HEAD_BYTES))
    except OSError as error:
        raise unreadable_error(file, error) from error


BINARY = "a binary file of an unknown format"


def check_is_text(
    file: str, expected: str, is_declared: bool = False, may_begin_with_values: bool = False
) -> None:
    """Checks that a file is not of another known kind, such as a PDF.

    Args:
      file: the path; a .gz file is decompressed.
      is_declared: whether the config names the delimiter or the encoding; control characters may
        then be delimiters, or bytes of letters.
      may_begin_with_values: whether the file has no header; its first value may then be a list.

    Raises:
      DataError: the file is of another kind or cannot be read.
    """
    head = read_head(file)
    kind = kind_of_file(head[:MAGIC_BYTES])
    if not kind and not is_declared:
        if _is_binary(head):
            kind = BINARY
        elif not may_begin_with_values:
            kind = kind_of_text(head.decode(errors="replace"))
    kind = kind_by_name(kind, file)
    if kind and kind != expected:
        advice = remedy(kind, file, expected)
        if kind in FORMATS_OF_KINDS:
            advice = f"write data.format: {FORMATS_OF_KINDS[kind]}"
        raise DataError(f"{file} is {kind}, not {expected}: {advice}, or leave it out.")
