"""Rows that need no label: those of data without one are all of the same class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from components.example_gen.columns.encoded import ColumnKind, label_lengths, single_values
from components.example_gen.columns.known_kinds import ColumnKinds
from components.example_gen.columns.seen import SeenColumn
from components.example_gen.sources.base import Batch, Files, RowsSource, Survey

NO_CLASS = b"none"
"""The class of all rows of such data."""


class OptionalLabelSource(RowsSource):
    """A source whose rows get a label where no row of all the data has one."""

    def survey(self, files: Files) -> Survey:
        """The columns of the rows, and a label; reads on until a row has one."""
        survey, label = self._rows.survey(files), self._settings.label
        if self._settings.format_spec.holds_images:
            return replace(survey, has_label=True)
        if survey.columns and label not in survey.columns:
            column = SeenColumn(ColumnKind.BYTES, texts=1)
            return replace(survey, columns={**survey.columns, label: column})
        kinds = {name: column.kind for name, column in survey.columns.items()}
        batches = self._rows.read(files, kinds)
        return replace(survey, has_label=any(_has_labels(batch, label) for batch in batches))

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows, with a label each unless the data has some: then a row may lack it."""
        label, there = self._settings.label, self._rows.glance(files)
        are_labelled = isinstance(kinds, ColumnKinds) and kinds.are_labelled
        given = kinds.copy()
        if there and label not in there:
            given.pop(label, None)
        for batch in self._rows.read(files, given):
            yield batch if are_labelled or _has_labels(batch, label) else _with_labels(batch, label)


def _has_labels(batch: Batch, label: str) -> bool:
    names = batch.rows.schema.names
    return label in names and label_lengths(batch.rows.column(label)).max(initial=0) > 0


def _with_labels(batch: Batch, label: str) -> Batch:
    names = [name for name in batch.rows.schema.names if name != label]
    labels = single_values(pa.array([NO_CLASS] * batch.rows.num_rows, pa.binary()))
    columns = [*(batch.rows.column(name) for name in names), labels]
    return replace(batch, rows=pa.record_batch(columns, [*names, label]), examples=None)
