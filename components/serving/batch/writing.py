"""Writing of predictions to files. The parts of an output are joined at the end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from components.disk import disk_full, is_disk_full, write_atomically
from components.serving.top_classes import CLASSES, SCORES
from trainer_module.errors import ConfigError, TryLaterError

SCORE = "score_"
"""The prefix of the columns of scores. The name of the class follows the prefix."""


def to_columns(answers: Mapping[str, np.ndarray], top_k: int | None = None) -> dict[str, pa.Array]:
    """Returns the columns of predictions by name.

    The first column is `class` or `value`. The scores of classes are `score_<class>`. An output
    with several values per row has numbered columns, such as `quantiles_1`; so have `classes` and
    `scores` if each row has only its most probable classes.

    Args:
      answers: the outputs by name, of the shape [rows] or [rows, ...].
      top_k: the number of classes to which `keep_top_classes` has reduced the outputs, or None.
    """
    columns: dict[str, pa.Array] = {}
    for name in sorted(answers, key=lambda name: (answers[name].ndim, name)):
        values = answers[name]
        if name == CLASSES and SCORES in answers and top_k is None:
            continue
        if values.ndim == 1:
            columns[name] = _column(values)
            continue
        flat = values.reshape(len(values), -1)
        names = _class_columns(answers) if name == SCORES and top_k is None else []
        names = names or [f"{name}_{number}" for number in range(1, flat.shape[1] + 1)]
        for index, column in enumerate(names):
            columns[column] = _column(flat[:, index])
    return columns


def check_names(copied: list[str], answers: Mapping[str, pa.Array]) -> None:
    """Raises ConfigError if a copied column has the name of a column of predictions."""
    if duplicates := [name for name in copied if name in answers]:
        raise ConfigError(
            f"--columns {duplicates[0]}: the predictions have a column of the same name; rename the"
            " column of the input."
        )


def _class_columns(answers: Mapping[str, np.ndarray]) -> list[str]:
    """Returns the names of the columns of scores, or an empty list if there are no class names."""
    classes = answers.get(CLASSES)
    if classes is None or not len(classes):
        return []
    return [f"{SCORE}{_text(label)}" for label in classes[0]]


def _column(values: np.ndarray) -> pa.Array:
    if values.dtype == object:
        return text_column(pa.array(values.tolist(), pa.binary()))
    return pa.array(values)


def text_column(values: pa.Array) -> pa.Array:
    """Returns bytes as text. Bytes that are not UTF-8 are escaped."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if v is None else _text(v) for v in values.to_pylist()]
        return pa.array(texts, pa.string())


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


class _JsonWriter:
    """A writer of a JSON object per row. NaN and infinity, which JSON lacks, become null."""

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


class _CsvWriter:
    """A writer of CSV. Lists become texts in JSON."""

    def __init__(self, path: Path, schema: pa.Schema, is_first: bool) -> None:
        self._lists = [field.name for field in schema if pa.types.is_list(field.type)]
        fields = [pa.field(f.name, pa.string()) if f.name in self._lists else f for f in schema]
        options = pa_csv.WriteOptions(include_header=is_first)
        self._writer = pa_csv.CSVWriter(path, pa.schema(fields), write_options=options)

    def write_table(self, table: pa.Table) -> None:
        for name in self._lists:
            texts = [
                json.dumps(v, ensure_ascii=False, separators=(",", ":"))
                for v in table[name].to_pylist()
            ]
            table = table.set_column(table.column_names.index(name), name, pa.array(texts))
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


Writer: TypeAlias = _CsvWriter | pq.ParquetWriter | _JsonWriter
"""A writer of tables with the same schema to a file."""
Opener = Callable[[Path, pa.Schema, bool], Writer]
Joiner = Callable[[Sequence[Path], Path], None]
WRITERS: dict[str, tuple[Opener, Joiner]] = {
    ".csv": (_CsvWriter, _join_bytes),
    ".jsonl": (lambda path, schema, is_first: _JsonWriter(path), _join_bytes),
    ".parquet": (lambda path, schema, is_first: pq.ParquetWriter(path, schema), _join_parquet),
}
"""The functions that open a part and join all parts, by the ending of the file's name.

The last argument of an opener is whether the part is the first. Only the first part of a CSV has a
header.
"""


def check_output(output: Path) -> None:
    """Raises ConfigError unless the output is a file of a known format in an existing folder."""
    if output.is_dir():
        raise ConfigError(
            f"--output {output} is a folder: name a file, such as {output / 'predictions.csv'}"
            " (the folder with the pipeline's output is --output-folder)."
        )
    if output.suffix.lower() not in WRITERS:
        supported = ", ".join(WRITERS)
        raise ConfigError(
            f"--output {output} ends in {output.suffix!r}, expected one of {supported}."
        )
    if not output.absolute().parent.is_dir():
        raise ConfigError(
            f"--output {output}: the folder {output.absolute().parent} does not exist."
        )


PART_ROWS = 200_000
PART_SECONDS = 30.0
"""The rows or seconds after which a part is complete. If the command is killed, only the part in
progress is lost."""
_STATE = "state.json"


@dataclass(frozen=True)
class Part:
    """A completed part of the output."""

    rows: int
    checksum: int
    """The checksum of the input rows."""


@contextmanager
def exclusive_output(output: Path) -> Iterator[None]:
    """Locks an output against other commands in a `with` block.

    If the process is killed, the lock is released.

    Args:
      output: the file or folder to write. The lock file is in the same folder.

    Raises:
      TryLaterError: another command writes the output.
      ConfigError: the lock file cannot be created.
    """
    lock = FileLock(output.with_name(f".{output.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise TryLaterError(
            f"--output {output} is being written by another command: wait until that command has"
            " ended, or name another file."
        ) from None
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(output) from None
        raise ConfigError(
            f"--output {output} cannot be written ({error.strerror or error}): name a file in a"
            " folder that you may write."
        ) from None
    try:
        yield
    finally:
        # The file is removed before the lock is released, so that no other command locks it.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


class Parts:
    """The parts of an output file, which are joined at the end.

    The parts are in a folder next to the output file. A later command reuses the parts if its
    `identity` is equal and it reads the same rows.
    """

    def __init__(self, output: Path, identity: object) -> None:
        """Args:
        output: the output file.
        identity: a JSON value that identifies the job, from `PredictionJob.identity`.
        """
        self._output = output
        self._folder = output.with_name(f"{output.name}.parts")
        self._identity = json.loads(json.dumps(identity))
        self._open_writer, self._join = WRITERS[output.suffix.lower()]
        self._writer: Writer | None = None
        self._rows, self._checksum, self._start = 0, 0, 0.0
        """The rows, the checksum and the start time of the part in progress."""
        self.done = self._read()

    @property
    def folder(self) -> Path:
        """The folder that contains the parts."""
        return self._folder

    @property
    def rows(self) -> int:
        """The number of rows in all complete parts."""
        return sum(part.rows for part in self.done)

    @property
    def rows_so_far(self) -> int:
        """The number of rows written, including the part in progress."""
        return self.rows + self._rows

    def _read(self) -> list[Part]:
        try:
            state = json.loads((self._folder / _STATE).read_text())
            parts = [Part(**part) for part in state["parts"]]
            is_same = state["identity"] == self._identity
        except (OSError, ValueError, TypeError, KeyError):
            return []
        is_complete = all(self._path(number).exists() for number in range(len(parts)))
        return parts if is_same and is_complete else []

    def keep(self, count: int) -> None:
        """Keeps the given number of first parts, and drops the other parts."""
        self.done = self.done[:count]

    def write(self, table: pa.Table, checksum: int) -> None:
        """Appends the predictions of a block to the part in progress.

        Args:
          table: a table with the same columns at each call.
          checksum: the checksum of the input rows of this part, including this block.
        """
        if self._writer is None:
            self._folder.mkdir(exist_ok=True)
            self._start = time.monotonic()
            path = self._incomplete_path()
            self._writer = self._open_writer(path, table.schema, not self.done)
        self._writer.write_table(table)
        self._rows, self._checksum = self._rows + table.num_rows, checksum

    @property
    def is_full(self) -> bool:
        """Whether the part in progress should be completed."""
        is_old = time.monotonic() - self._start > PART_SECONDS
        return self._rows >= PART_ROWS or (self._rows > 0 and is_old)

    def complete(self) -> None:
        """Closes the part in progress, and records it."""
        if self._writer is None:
            return
        self._writer.close()
        self._incomplete_path().rename(self._path(len(self.done)))
        self.done.append(Part(self._rows, self._checksum))
        parts = [asdict(part) for part in self.done]
        write_atomically(
            self._folder / _STATE, json.dumps({"identity": self._identity, "parts": parts})
        )
        self._writer, self._rows, self._checksum = None, 0, 0

    def join(self) -> None:
        """Joins the parts to the output file, and deletes them."""
        self.complete()
        joined = self._folder / f"joined{self._output.suffix}"
        self._join([self._path(number) for number in range(len(self.done))], joined)
        joined.replace(self._output)
        shutil.rmtree(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:05}{self._output.suffix}"

    def _incomplete_path(self) -> Path:
        return self._folder / f"incomplete{self._output.suffix}"
