"""Opens files; what knows remote ones is imported for them alone, as it takes seconds."""

from __future__ import annotations

import os
import posixpath

import pyarrow as pa

from components.example_gen.paths import is_remote
from trainer_module.errors import DataError


def open_file(file: str) -> pa.NativeFile:
    """A local or remote file's bytes as they are."""
    if not is_remote(file):
        return pa.OSFile(file)
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    opened = FileSystems.open(file, compression_type=CompressionTypes.UNCOMPRESSED)
    return pa.PythonFile(opened, mode="r")


def open_stream(file: str) -> pa.NativeFile:
    """A file's bytes, of a .gz file those within; reading a damaged one raises OSError."""
    stream = open_file(file)
    return pa.CompressedInputStream(stream, "gzip") if is_gzip(file) else stream


def exists(path: str) -> bool:
    """Whether there is a local or remote file or folder."""
    if not is_remote(path):
        return os.path.exists(path)
    from tfx.dsl.io import fileio

    return bool(fileio.exists(path))


def is_folder(path: str) -> bool:
    """Whether a local or remote path is a folder."""
    if not is_remote(path):
        return os.path.isdir(path)
    from tfx.dsl.io import fileio

    return bool(fileio.isdir(path))


def is_gzip(file: str) -> bool:
    """Whether the name says that the file is gzipped."""
    return posixpath.splitext(file)[1].lower() == ".gz"


def unreadable_error(file: str, error: Exception) -> DataError:
    """The error for a file whose bytes cannot be had."""
    reason = reason_of(error)
    if is_gzip(file):
        return DataError(f"{file} is no complete gzip file ({reason}): copy or compress it again.")
    return DataError(f"{file} cannot be read ({reason}): copy or write it again.")


def reason_of(error: Exception) -> str:
    """What a library said, on one line and without signs that no screen shows."""
    words = " ".join(str(error).split())
    return "".join(sign if sign.isprintable() else "?" for sign in words)
