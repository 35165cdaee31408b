"""A Beam transform that distributes files over processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam


class SpreadFiles(beam.PTransform):
    """A transform that distributes elements over processes. Each element contains files to read."""

    def __init__(
        self,
        elements: Sequence[Any],
        files: Sequence[str],
        runs_models: bool = False,
        is_counted: bool = False,
    ) -> None:
        """Sets the elements and the files.

        Args:
          files: all files that the elements contain. Their size determines the number of processes.
          runs_models: whether the pipeline runs models on the rows, which may use a GPU.
          is_counted: whether the step that reads the files counts its rows by `count_read`.
        """
        super().__init__()
        self.elements = list(elements)
        self.files = list(files)
        self.runs_models = runs_models
        self.is_counted = is_counted

    @property
    def reads_examples(self) -> bool:
        """Whether the files contain examples that an earlier component has written."""
        return self.is_counted or self.runs_models

    def expand(self, pipeline: Any) -> beam.PCollection:
        """Distributes the elements over processes."""
        return pipeline | "Create" >> beam.Create(self.elements) | "Spread" >> beam.Reshuffle()
