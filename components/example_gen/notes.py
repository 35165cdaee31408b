"""Notes on the data for the summary of a run.

The notes are stored with the examples, so that a run that reuses the examples reports them too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from components.column_types.dates import Dates
from components.example_gen.columns.encoded import Cell
from trainer_module.errors import counted

_PROPERTY = "findings"
# The maximum number of files that a note names.
_SHOWN_FILES = 3


@dataclass
class FileNotes:
    """The counts of pictures that are converted or left out, and of past labels that are missing,
    in a part of the data.
    """

    converted: Counter[str] = field(default_factory=Counter)
    """The number of pictures that are converted to PNG, by their original format."""
    broken: list[str] = field(default_factory=list)
    """The first broken files, each with the reason."""
    broken_files: int = 0
    lagged_rows: int = 0
    """The number of rows to which past labels are added."""
    early_lags: Counter[str] = field(default_factory=Counter)
    """The number of rows without a past label because the series had not begun, by column."""
    lag_gaps: Counter[str] = field(default_factory=Counter)
    """The number of other rows without a past label, by column: the series has gaps."""
    first_gap: list[Cell] = field(default_factory=list)
    """The first row without a past label because of a gap, or an empty list."""

    def add_broken(self, sentence: str) -> None:
        """Counts a broken file, which is left out."""
        self.add(FileNotes(broken=[sentence], broken_files=1))

    def add(self, other: FileNotes) -> None:
        """Adds the counts of another part of the data."""
        self.converted += other.converted
        self.broken = sorted([*self.broken, *other.broken])[:_SHOWN_FILES]
        self.broken_files += other.broken_files
        self.lagged_rows += other.lagged_rows
        self.early_lags += other.early_lags
        self.lag_gaps += other.lag_gaps
        gaps = [*self.first_gap, *other.first_gap]
        self.first_gap = sorted(gaps, key=lambda cell: (cell.file, cell.row))[:1]

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
            verb = "was converted" if total == 1 else "were converted"
            notes.append(
                f"{counted(total, 'picture')} {verb} to PNG ({kinds}): TensorFlow cannot decode the"
                " original format, or decodes it differently from picture viewers"
            )
        return [*notes, *self._lag_sentences()]

    def _lag_sentences(self) -> Iterator[str]:
        if self.early_lags:
            yield (
                f"data.lags: of {counted(self.lagged_rows, 'row')}, the first of a series have no"
                f" past label: {_by_column(self.early_lags)}"
            )
        if self.lag_gaps:
            yield (
                "data.lags: the series has gaps, times without a row or label, so that"
                f" past labels are missing: {_by_column(self.lag_gaps)}; the first such row is"
                f" {self.first_gap[0]}"
            )


def _by_column(counts: Counter[str]) -> str:
    return ", ".join(f"{name} in {counted(count, 'row')}" for name, count in counts.items())


def note_left_out(paths: Sequence[str], noun: str, reason: str) -> list[str]:
    """Returns a note on files or folders that are not read, or an empty list without any."""
    shown = sorted(paths)[:_SHOWN_FILES]
    listed = f"{', '.join(shown)}{_more(len(paths), shown)}"
    return [f"{counted(len(paths), noun)} {reason}: {listed}"] if shown else []


@dataclass(frozen=True)
class DataNotes:
    """The notes on the data, and the data's date columns."""

    sentences: list[str]
    dates: dict[str, Dates]
    """The date columns that the config does not declare, by name."""

    def to_json(self) -> str:
        """Returns the notes as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DataNotes:
        """Returns the notes that `to_json` has converted."""
        values = json.loads(text)
        return cls(
            values["sentences"], {name: Dates(**fields) for name, fields in values["dates"].items()}
        )


def write_notes(artifact: Any, notes: DataNotes) -> None:
    """Stores the notes as a property of the examples' artifact."""
    artifact.set_string_custom_property(_PROPERTY, notes.to_json())


def read_notes(artifact: Any) -> DataNotes:
    """Returns the notes that are stored with the examples' artifact."""
    text = artifact.get_string_custom_property(_PROPERTY)
    return DataNotes.from_json(text) if text else DataNotes([], {})


def _more(total: int, shown: Sequence[str]) -> str:
    return f" and {total - len(shown)} more" if total > len(shown) else ""
