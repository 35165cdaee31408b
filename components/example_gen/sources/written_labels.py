"""Numbers to predict that are written as text, such as $22,500: read before anything else is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.checks.rows import unusable_label
from components.example_gen.columns.encoded import (
    Cell,
    ColumnKind,
    first_values,
    label_lengths,
    shown,
    single_values,
)
from components.example_gen.columns.known_kinds import ColumnKinds
from components.example_gen.columns.seen import sample_words
from components.example_gen.sources.base import Batch, Files, RowsSource, Survey
from trainer_module.features.number_format import SPACES, Writing, is_placeholder


class WrittenLabelSource(RowsSource):
    """A source whose label becomes a number where it is one in text."""

    def survey(self, files: Files) -> Survey:
        """The columns of the rows, and words of a label that is text."""
        survey, label = self._rows.survey(files), self._settings.label
        column = survey.columns.get(label)
        if column is None or column.kind is not ColumnKind.BYTES:
            return survey
        kinds = {name: one.kind for name, one in survey.columns.items()}
        words = frozenset[str]()
        for batch in self._rows.read(files, kinds):
            values = batch.rows.column(label).flatten()
            if pa.types.is_null(values.type):
                continue
            found = values.unique().cast(pa.binary()).to_pylist()
            words = sample_words(words | {word.decode(errors="replace") for word in found})
        return replace(survey, columns={**survey.columns, label: replace(column, words=words)})

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows, with numbers as labels."""
        writing = kinds.label_writing if isinstance(kinds, ColumnKinds) else None
        if writing is None:
            yield from self._rows.read(files, kinds)
            return
        as_text = kinds.copy()
        as_text[self._settings.label] = ColumnKind.BYTES
        for batch in self._rows.read(files, as_text):
            yield self._with_numbers(batch, writing)

    def _with_numbers(self, batch: Batch, writing: Writing) -> Batch:
        name = self._settings.label
        column = batch.rows.column(name)
        if pa.types.is_null(column.type) or label_lengths(column).max(initial=0) > 1:
            return batch  # What is wrong with several values is said later.
        encoded = first_values(column).dictionary_encode()
        values = encoded.dictionary.cast(pa.binary()).to_pylist()
        texts = [value.decode(errors="replace") for value in values]
        numbers = [None if _is_missing(text) else writing.read(text) for text in texts]
        for place, number in enumerate(numbers):  # The different texts, in the order of their rows.
            if number is not None and math.isnan(number):
                row = batch.first.row + pc.index(encoded.indices, place).as_py()
                cell = Cell(batch.first.file, row, shown(texts[place]))
                raise unusable_label(self._settings, cell)
        labels = pa.array(numbers, pa.float32()).take(encoded.indices)
        place = batch.rows.schema.get_field_index(name)
        rows = batch.rows.set_column(place, name, single_values(labels))
        return replace(batch, rows=rows, examples=None)


def _is_missing(text: str) -> bool:
    return not text.strip(SPACES) or is_placeholder(text)
