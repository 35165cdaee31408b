"""Which files are answered together, and the folder that their answers are written to.

All that is known of a shard stands in files of that folder, which workers and the command share.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock

from components.disk import write_whole
from components.serving.batch.reading import Input
from trainer_module.errors import ConfigError

_PICTURES = 4096
"""Pictures that are answered together: each is a file of one row."""
_STATE = ".predict"
_IDENTITY = "job.json"


@dataclass(frozen=True)
class Shard:
    """Files whose rows are answered by one worker, in order."""

    number: int
    count: int
    """Of all shards."""
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the file with the answers."""
        return f"part-{self.number:05}-of-{self.count:05}.parquet"

    def stamps(self) -> list[list[int]]:
        """Differ once a file changes."""
        found = [Path(file).stat() for file in self.files]
        return [[status.st_size, status.st_mtime_ns] for status in found]


@dataclass(frozen=True)
class ShardResult:
    """What came of a shard: its rows are answered, or something is wrong with its files."""

    rows: int
    error: str = ""
    stamps: list[list[int]] = field(default_factory=list)
    """The size and the time of each file, as they were."""
    unreadable: dict[str, int] = field(default_factory=dict)
    """By column, texts that the model could not read."""


def make_shards(given: Input) -> list[Shard]:
    """A shard for each file; of pictures for some thousands.

    Paths are absolute, as workers run elsewhere.

    Raises:
      ConfigError: there is only one, which several workers cannot share.
    """
    size = _PICTURES if given.format == "images" else 1
    files = tuple(map(os.path.abspath, given.files))
    parts = [files[start : start + size] for start in range(0, len(files), size)]
    if len(parts) == 1:
        what = f"the {len(parts[0])} pictures" if len(parts[0]) > 1 else parts[0][0]
        raise ConfigError(
            f"--runner shares the work by file, and --input names {what} alone: leave --runner"
            " out, or split the rows into several files."
        )
    return [Shard(number, len(parts), files) for number, files in enumerate(parts)]


class OutputFolder:
    """A file of answers for each shard, and until all are there a note of what came of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / _STATE

    def begin(self, identity: Sequence[object]) -> None:
        """Makes the folder, or goes on with what the same command has left in it.

        Args:
          identity: equal for a command that does the same.

        Raises:
          ConfigError: it holds something else.
        """
        text = json.dumps(identity)
        if self._state.is_dir() and self._identity() == text:
            for path in self._state.glob("part-*.json"):
                if json.loads(path.read_text())["error"]:
                    path.unlink()
            return
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise ConfigError(
                f"--output {self.folder} holds files of something else already: name a new folder."
                " (A command that was stopped goes on where its input and model are the same.)"
            )
        self._state.mkdir(parents=True)
        write_whole(self._state / _IDENTITY, text)

    def check(self) -> None:
        """Raises ConfigError if the output is a file, or its parent is no folder."""
        if self.folder.suffix or self.folder.is_file():
            raise ConfigError(
                f"--output {self.folder} names one file, and with --runner the answers are a"
                " Parquet file for each input file: name a folder."
            )
        if not self.folder.absolute().parent.is_dir():
            raise ConfigError(
                f"--output {self.folder}: there is no folder {self.folder.absolute().parent}."
            )

    def _identity(self) -> str:
        try:
            return (self._state / _IDENTITY).read_text()
        except OSError:
            return ""

    def answers_of(self, shard: Shard) -> Path:
        """Where the answers to a shard are put."""
        return self.folder / shard.name

    def lock(self, shard: Shard) -> FileLock:
        """Held by the worker that answers a shard: some runners give it to two of them."""
        return FileLock(self._state / f"{shard.name}.lock")

    def outcome(self, shard: Shard) -> ShardResult | None:
        """What came of a shard; None while nothing has, or since its files have changed."""
        try:
            found = ShardResult(**json.loads(self._note(shard).read_text()))
        except OSError:
            return None
        is_there = bool(found.error) or self.answers_of(shard).is_file()
        return found if is_there and found.stamps == shard.stamps() else None

    def record(self, shard: Shard, outcome: ShardResult) -> None:
        """Notes what came of a shard."""
        write_whole(self._note(shard), json.dumps(asdict(outcome)))

    def _note(self, shard: Shard) -> Path:
        return self._state / f"{shard.name}.json"

    def finish(self) -> None:
        """Takes the notes away, as all answers are there."""
        shutil.rmtree(self._state)
