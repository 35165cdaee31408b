"""How often values of columns occur: counted by Beam in one pass, and kept in the cache."""

from __future__ import annotations

import collections
import functools
import json
from collections.abc import Iterable

import apache_beam as beam
import numpy as np
import tensorflow_transform as tft

from trainer_module.vocabularies.orders import MOST_COUNTED, most_frequent


class CountValues(beam.PTransform):
    """From batches of all columns to one list: for each column, counts by value."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def __repr__(self) -> str:
        # Part of the cache's key: another number where other values are counted, or otherwise.
        return "<CountValues 1>"

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        """One element for all batches; none if there are none."""
        return (
            batches
            | "Count in batch" >> beam.Map(_count_batch)
            | "Sum" >> beam.CombineGlobally(SumCounts(self._columns)).without_defaults()
        )


class CountsCoder(tft.experimental.PTransformAnalyzerCacheCoder):
    """Counts as JSON, in which every byte of a value is one character."""

    def __repr__(self) -> str:
        # Part of the cache's key: another number where the format is another.
        return "<CountsCoder 1>"

    def encode_cache(self, cache: list[dict[bytes, int]]) -> bytes:
        """The same bytes for the same counts, whatever order they were found in."""
        return json.dumps(
            [
                {value.decode("latin-1"): counts[value] for value in sorted(counts)}
                for counts in cache
            ]
        ).encode()

    def decode_cache(self, encoded_cache: bytes) -> list[dict[bytes, int]]:
        """The opposite of `encode_cache`."""
        return [
            {value.encode("latin-1"): count for value, count in counts.items()}
            for counts in json.loads(encoded_cache)
        ]


class SumCounts(beam.CombineFn):
    """Adds up counts by value, column by column."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns

    def create_accumulator(self) -> list[dict[bytes, int]]:
        """No counts."""
        return [{} for _ in range(self._columns)]

    def add_input(
        self, accumulator: list[dict[bytes, int]], element: list[dict[bytes, int]]
    ) -> list[dict[bytes, int]]:
        """The sums, of the most frequent values alone where there are very many."""
        for sums, counts in zip(accumulator, element, strict=True):
            for value, count in counts.items():
                sums[value] = sums.get(value, 0) + count
            if len(sums) > 2 * MOST_COUNTED:
                kept = sorted(sums.items(), key=most_frequent)[:MOST_COUNTED]
                sums.clear()
                sums.update(kept)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[list[dict[bytes, int]]]
    ) -> list[dict[bytes, int]]:
        """The sums of all."""
        # Into a new one: Beam may still need those that it gives.
        return functools.reduce(self.add_input, accumulators, self.create_accumulator())

    def extract_output(self, accumulator: list[dict[bytes, int]]) -> list[dict[bytes, int]]:
        """As they are."""
        return accumulator


def _count_batch(columns: tuple[np.ndarray, ...]) -> list[dict[bytes, int]]:
    return [
        {
            value: count
            for value, count in collections.Counter(column.ravel().tolist()).items()
            if value and b"\n" not in value and b"\r" not in value
        }
        for column in columns
    ]
