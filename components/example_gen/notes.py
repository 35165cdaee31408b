"""Notes on usable data for the summary; stored with the examples for cached reruns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from components.column_types.dates import Dates
from trainer_module.errors import counted

_PROPERTY = "findings"
# The most files in a note.
_SHOWN_FILES = 3


@dataclass
class FileNotes:
    """The counts of files that are converted or left out; can be added over all of the data."""

    converted: Counter[str] = field(default_factory=Counter)
    """The number of pictures that were converted to PNG, by their format."""
    broken: list[str] = field(default_factory=list)
    """The first files that are left out, each with the reason."""
    broken_files: int = 0

    def add_broken(self, sentence: str) -> None:
        """Counts a file that is left out."""
        self.add(FileNotes(broken=[sentence], broken_files=1))

    def add(self, other: FileNotes) -> None:
        """Adds the counts of another part of the data."""
        self.converted += other.converted
        self.broken = sorted([*self.broken, *other.broken])[:_SHOWN_FILES]
        self.broken_files += other.broken_files

    def sentences(self) -> list[str]:
        """Returns a sentence for each kind of note."""
        notes = []
        if self.broken_files:
            verb = "is" if self.broken_files == 1 else "are"
            shown = "; ".join(self.broken) + _more(self.broken_files, self.broken)
            notes.append(
                f"{counted(self.broken_files, 'broken picture')} {verb} left out"
                f" (data.on_bad_file: skip): {shown}"
            )
        if total := self.converted.total():
            kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(self.converted.items()))
            became = "became a PNG" if total == 1 else "became PNGs"
            notes.append(
                f"{counted(total, 'picture')} {became}, since TensorFlow does not decode these"
                f" files, or differently from a viewer ({kinds})"
            )
        return notes


def note_left_out(paths: Sequence[str], noun: str, why: str) -> list[str]:
    """Returns a note on files or folders that are not read, if there are any."""
    shown = sorted(paths)[:_SHOWN_FILES]
    listed = f"{', '.join(shown)}{_more(len(paths), shown)}"
    return [f"{counted(len(paths), noun)} {why}: {listed}"] if shown else []


@dataclass(frozen=True)
class DataNotes:
    """The notes on usable data, and its date columns."""

    sentences: list[str]
    """The notes for the summary."""
    dates: dict[str, Dates]
    """The dates in columns that the config does not declare."""

    def to_json(self) -> str:
        """Returns the notes as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DataNotes:
        """Returns the notes that `to_json` has written."""
        values = json.loads(text)
        return cls(
            values["sentences"], {name: Dates(**fields) for name, fields in values["dates"].items()}
        )


def write_notes(artifact: Any, notes: DataNotes) -> None:
    """Stores the notes with the examples, a TFX artifact."""
    artifact.set_string_custom_property(_PROPERTY, notes.to_json())


def read_notes(artifact: Any) -> DataNotes:
    """Returns the notes that are stored with the examples."""
    text = artifact.get_string_custom_property(_PROPERTY)
    return DataNotes.from_json(text) if text else DataNotes([], {})


def _more(total: int, shown: Sequence[str]) -> str:
    return f" and {total - len(shown)} more" if total > len(shown) else ""
