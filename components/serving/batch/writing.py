"""The formats that predictions are written in: a part of them at a time, joined at the end."""

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

from components.disk import disk_full, says_full, write_whole
from trainer_module.errors import ConfigError, TryLaterError

_CLASSES, _SCORES = "classes", "scores"
SCORE = "score_"
"""Begins the names of the columns of scores, before the class."""


def to_columns(answers: Mapping[str, np.ndarray]) -> dict[str, pa.Array]:
    """Returns a column for each number or name that a row is answered by.

    `class` or `value` come first; the scores of classes are `score_<class>`, and what else has
    several places is numbered from 1, as in `quantiles_1`.

    Args:
      answers: by name, [rows] or [rows, places].
    """
    columns: dict[str, pa.Array] = {}
    for name in sorted(answers, key=lambda name: (answers[name].ndim, name)):
        values = answers[name]
        if name == _CLASSES and _SCORES in answers:
            continue
        if values.ndim == 1:
            columns[name] = _column(values)
            continue
        flat = values.reshape(len(values), -1)
        for place, title in enumerate(_titles(name, answers, flat.shape[1])):
            columns[title] = _column(flat[:, place])
    return columns


def check_names(kept: list[str], answers: Mapping[str, pa.Array]) -> None:
    """Raises ConfigError for a column of the rows that is called as one of the answers."""
    if twice := [name for name in kept if name in answers]:
        raise ConfigError(
            f"--columns {twice[0]}: the answers have a column of that name; rename yours."
        )


def _titles(name: str, answers: Mapping[str, np.ndarray], places: int) -> list[str]:
    if name == _SCORES and _CLASSES in answers and len(answers[_CLASSES]):
        return [f"{SCORE}{_text(label)}" for label in answers[_CLASSES][0]]
    return [f"{name}_{place}" for place in range(1, places + 1)]


def _column(values: np.ndarray) -> pa.Array:
    if values.dtype == object:
        return text_column(pa.array(values.tolist(), pa.binary()))
    return pa.array(values)


def text_column(values: pa.Array) -> pa.Array:
    """Bytes as text; what is no UTF-8 is written by its codes."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if v is None else _text(v) for v in values.to_pylist()]
        return pa.array(texts, pa.string())


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


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


Writer: TypeAlias = pa_csv.CSVWriter | pq.ParquetWriter | _JsonWriter
"""Writes tables of one schema to a file."""
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


PART_ROWS = 200_000
PART_SECONDS = 30.0
"""After so many rows, or so long, a part is complete: what is lost by a kill is no more."""
_STATE = "state.json"


@dataclass(frozen=True)
class Part:
    """Rows that are predicted and written."""

    rows: int
    checksum: int
    """Of what was read."""


@contextmanager
def only_writer(output: Path) -> Iterator[None]:
    """Keeps other commands off an output, in a `with` block; a process that is killed loses it.

    Args:
      output: the file or folder that is written; the lock lies beside it meanwhile.

    Raises:
      TryLaterError: another command writes it.
      ConfigError: nothing can be written beside it.
    """
    lock = FileLock(output.with_name(f".{output.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise TryLaterError(
            f"--output {output} is being written by another command: wait for it to end, or name"
            " another file."
        ) from None
    except OSError as error:
        if says_full(error):
            raise disk_full(output) from None
        raise ConfigError(
            f"--output {output} cannot be written ({error.strerror or error}): name a file in a"
            " folder of yours."
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # While it is held: whoever waits for it looks for a new one.
            Path(lock.lock_file).unlink()
        lock.release()


class Parts:
    """The parts of an output file, in a folder beside it until they are joined.

    They are kept for a command that does the same: whose `identity` is equal, and which reads the
    same rows.
    """

    def __init__(self, output: Path, identity: object) -> None:
        self._output = output
        self._folder = output.with_name(f"{output.name}.parts")
        self._identity = json.loads(json.dumps(identity))
        self._open_writer, self._join = WRITERS[output.suffix.lower()]
        self._writer: Writer | None = None
        self._rows, self._checksum, self._since = 0, 0, 0.0
        self.done = self._read()

    @property
    def folder(self) -> Path:
        """Where the parts are."""
        return self._folder

    @property
    def rows(self) -> int:
        """Of all complete parts."""
        return sum(part.rows for part in self.done)

    @property
    def rows_until_now(self) -> int:
        """Those of the part that is being written included."""
        return self.rows + self._rows

    def _read(self) -> list[Part]:
        try:
            state = json.loads((self._folder / _STATE).read_text())
            parts = [Part(**part) for part in state["parts"]]
            is_same = state["identity"] == self._identity
        except (OSError, ValueError, TypeError, KeyError):
            return []
        is_whole = all(self._path(number).exists() for number in range(len(parts)))
        return parts if is_same and is_whole else []

    def keep(self, number: int) -> None:
        """Forgets all parts but the first ones."""
        self.done = self.done[:number]

    def write(self, table: pa.Table, checksum: int) -> None:
        """Appends the answers to a block of rows.

        Args:
          table: of the same columns each time.
          checksum: of the rows of this part until now.
        """
        if self._writer is None:
            self._folder.mkdir(exist_ok=True)
            self._since = time.monotonic()
            scratch = self._scratch()
            self._writer = self._open_writer(scratch, table.schema, not self.done)
        self._writer.write_table(table)
        self._rows, self._checksum = self._rows + table.num_rows, checksum

    @property
    def is_full(self) -> bool:
        """Whether the part that is being written is to be completed."""
        is_old = time.monotonic() - self._since > PART_SECONDS
        return self._rows >= PART_ROWS or (self._rows > 0 and is_old)

    def complete(self) -> None:
        """Ends the part that is being written, and counts it."""
        if self._writer is None:
            return
        self._writer.close()
        self._scratch().rename(self._path(len(self.done)))
        self.done.append(Part(self._rows, self._checksum))
        parts = [asdict(part) for part in self.done]
        write_whole(self._folder / _STATE, json.dumps({"identity": self._identity, "parts": parts}))
        self._writer, self._rows, self._checksum = None, 0, 0

    def join(self) -> None:
        """Puts the output in its place, and takes the parts away."""
        self.complete()
        joined = self._folder / f"joined{self._output.suffix}"
        self._join([self._path(number) for number in range(len(self.done))], joined)
        joined.replace(self._output)
        shutil.rmtree(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:05}{self._output.suffix}"

    def _scratch(self) -> Path:
        return self._folder / f"incomplete{self._output.suffix}"
