"""The distribution of a pipeline's files over processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam


class SpreadFiles(beam.PTransform):
    """A transform that distributes elements, each of which names files to read, over processes."""

    def __init__(
        self,
        elements: Sequence[Any],
        files: Sequence[str],
        asks_models: bool = False,
        is_counted: bool = False,
    ) -> None:
        """Takes the elements and the files, which are known when the pipeline is made.

        Args:
          elements: the elements for the processes.
          files: all files that they will read, by which the number of processes is chosen.
          asks_models: whether models predict on them, for which GPUs are used.
          is_counted: whether the readers count rows by `count_read`.
        """
        super().__init__()
        self.elements = list(elements)
        self.files = list(files)
        self.asks_models = asks_models
        self.is_counted = is_counted

    def expand(self, pipeline: Any) -> beam.PCollection:
        """Distributes the elements over processes."""
        return pipeline | "Create" >> beam.Create(self.elements) | "Spread" >> beam.Reshuffle()
