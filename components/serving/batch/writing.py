"""The formats that predictions are written in: a part of them at a time, joined at the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from trainer_module.errors import ConfigError


class Writer(Protocol):
    """Writes tables of one schema to a file."""

    def write_table(self, table: pa.Table) -> None:
        """Appends rows."""

    def close(self) -> None:
        """Ends the file."""


class _JsonWriter:
    """An object a row; a number that JSON lacks, as NaN, is null."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", encoding="utf-8")

    def write_table(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            finite = {k: None if v != v or v in _INFINITE else v for k, v in row.items()}
            self._file.write(json.dumps(finite, ensure_ascii=False, separators=(",", ":")))
            self._file.write("\n")

    def close(self) -> None:
        self._file.close()


_INFINITE = (float("inf"), float("-inf"))


def _join_bytes(parts: Sequence[Path], joined: Path) -> None:
    with joined.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)


def _join_parquet(parts: Sequence[Path], joined: Path) -> None:
    with pq.ParquetWriter(joined, pq.read_schema(parts[0])) as target:
        for part in parts:
            with pq.ParquetFile(part) as source:
                for batch in source.iter_batches():
                    target.write_batch(batch)


def _open_csv(path: Path, schema: pa.Schema, is_first: bool) -> Writer:
    return pa_csv.CSVWriter(
        path, schema, write_options=pa_csv.WriteOptions(include_header=is_first)
    )


Opener = Callable[[Path, pa.Schema, bool], Writer]
Joiner = Callable[[Sequence[Path], Path], None]
WRITERS: dict[str, tuple[Opener, Joiner]] = {
    ".csv": (_open_csv, _join_bytes),
    ".jsonl": (lambda path, schema, is_first: _JsonWriter(path), _join_bytes),
    ".parquet": (lambda path, schema, is_first: pq.ParquetWriter(path, schema), _join_parquet),
}
"""By the ending of the file's name: what opens a part, and what joins all of them.

Of a part it matters whether it is the first, which has the header of a CSV.
"""


def check_output(output: Path) -> None:
    """Raises ConfigError unless predictions can be written to a file of the name."""
    if output.is_dir():
        raise ConfigError(
            f"--output {output} is a folder: name a file, such as {output / 'predictions.csv'};"
            " the folder with the pipeline's output is given by --output-folder."
        )
    if output.suffix.lower() not in WRITERS:
        right = ", ".join(WRITERS)
        raise ConfigError(f"--output {output} ends in {output.suffix!r}: right is one of {right}.")
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.absolute().parent}.")
