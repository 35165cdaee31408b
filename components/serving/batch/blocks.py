"""Rows on their way from files to a model."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import pyarrow as pa

from components.example_gen.columns.encoded import Cell


@dataclass(frozen=True)
class Block:
    """Rows that are read at once."""

    count: int
    first: Cell
    rows: pa.RecordBatch | None
    """Encoded columns; None where the file holds tf.Examples."""
    examples: list[bytes] | None = None
    kept: dict[str, pa.Array] = field(default_factory=dict)
    """Columns that go along to the answers, flat."""

    def checksum(self, before: int) -> int:
        """Changes with any value of the rows, and with what came before them."""
        if self.examples is not None:
            for example in self.examples:
                before = zlib.crc32(example, before)
        for batch in filter(None, [self.rows, pa.record_batch(self.kept) if self.kept else None]):
            before = zlib.crc32(batch.serialize(), before)
        return before
