"""Predictions as they come: parts that are kept when a command ends early, one file at the end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from filelock import FileLock, Timeout

from components.disk import disk_full, says_full, write_whole
from components.serving.batch.writing import WRITERS, Writer
from trainer_module.errors import ConfigError, TryLaterError

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
