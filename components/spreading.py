"""Work that several processes can share, because it begins with files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam


class SpreadFiles(beam.PTransform):
    """Elements, each of which is some files to read, wherever there is a process for it."""

    def __init__(
        self,
        elements: Sequence[Any],
        files: Sequence[str],
        asks_models: bool = False,
        is_counted: bool = False,
    ) -> None:
        """Takes what is known when the pipeline is made.

        Args:
          elements: what the processes get.
          files: all that they will read, by which the number of processes is chosen.
          asks_models: whether models are then asked about them, which GPUs are good for.
          is_counted: whether who reads them says how many rows that were, by `count_read`.
        """
        super().__init__()
        self.elements = list(elements)
        self.files = list(files)
        self.asks_models = asks_models
        self.is_counted = is_counted

    def expand(self, pipeline: Any) -> beam.PCollection:
        """Deals them out."""
        return pipeline | "Create" >> beam.Create(self.elements) | "Spread" >> beam.Reshuffle()
