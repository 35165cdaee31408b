"""Sources that add labels to the rows of another source, or parse its labels as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.checks.report import unusable_label
from components.example_gen.columns.encoded import (
    ColumnKind,
    excerpt,
    first_values,
    label_lengths,
    no_values,
    show_names,
    single_values,
)
from components.example_gen.columns.type_inference import ColumnSurvey, sample_words
from components.example_gen.formats import ExampleGenSettings, LabelsSettings
from components.example_gen.paths import find_label_files, label_format
from components.example_gen.sources.base import Batch, Files, Source, Survey
from components.example_gen.sources.parquet_source import REQUEST_ID
from components.example_gen.sources.surveys import ColumnKinds
from trainer_module.errors import DataError
from trainer_module.features.number_format import SPACES, NumberFormat, is_placeholder

_JOINED_ROWS = 65_536
"""The number of rows that are joined with labels at a time. Small joins would be slow, as each join
searches all labels."""

MakeSource = Callable[[ExampleGenSettings], Source]


class RowsSource(Source):
    """A base class of sources that change the rows of another source, the wrapped source."""

    def __init__(self, settings: ExampleGenSettings, rows: Source) -> None:
        super().__init__(settings)
        self._rows = rows

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns the groups of the wrapped source."""
        return self._rows.plan(files)

    def note_ignored_files(self, pattern: str, files: Sequence[str]) -> list[str]:
        """Returns the notes of the wrapped source."""
        return self._rows.note_ignored_files(pattern, files)

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns of the wrapped source."""
        return self._rows.peek(files)


@dataclass(frozen=True)
class _Labels:
    """The table of labels."""

    keys: pa.Array
    """The unique keys as bytes of text."""
    labels: pa.Array
    """The label of each key."""


class JoinedSource(RowsSource):
    """A source that joins rows with the labels in other files. A row may have no label."""

    def __init__(
        self,
        settings: ExampleGenSettings,
        labels: LabelsSettings,
        rows: Source,
        make_source: MakeSource,
    ) -> None:
        super().__init__(settings, rows)
        self._labels, self._make_source = labels, make_source
        self._label_survey: ColumnSurvey | None = None
        self._label_table: tuple[tuple[ColumnKind, ColumnKind], _Labels] | None = None

    def survey(self, files: Files) -> Survey:
        """Returns the columns of the wrapped source, and the label."""
        survey = self._rows.survey(files)
        _check_columns(survey.columns, self._labels.key, self._settings.label, files[0])
        if self._label_survey is None:
            self._label_survey = self._survey_labels()
        return replace(survey, columns={**survey.columns, self._settings.label: self._label_survey})

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns of the wrapped source, and the label."""
        return {name: column.kind for name, column in self.survey(files).columns.items()}

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows with their labels. If the key is `request_id`, the column is left out."""
        read_as = kinds[self._settings.label], kinds[self._labels.key]
        if self._label_table is None or self._label_table[0] != read_as:
            self._label_table = read_as, self._read_labels(*read_as)
        batches: list[Batch] = []
        for batch in self._rows.read(files, kinds):
            batches.append(batch)
            if sum(waiting.rows.num_rows for waiting in batches) >= _JOINED_ROWS:
                yield from self._join(batches, self._label_table[1])
                batches = []
        yield from self._join(batches, self._label_table[1])

    def _join(self, batches: Sequence[Batch], table: _Labels) -> Iterator[Batch]:
        if not batches:
            return
        key = self._labels.key
        keys = pa.chunked_array(
            [_as_text(b.rows.column(key), key, b.first.file) for b in batches], pa.binary()
        )
        indices = pc.index_in(keys, value_set=table.keys).combine_chunks()
        start = 0
        for batch in batches:
            rows, count = batch.rows, batch.rows.num_rows
            values = table.labels.take(indices.slice(start, count))
            is_empty = values.null_count == count
            label = no_values(count) if is_empty else single_values(values)
            rows = rows.append_column(self._settings.label, label)
            if key == REQUEST_ID:
                rows = rows.drop_columns([key])
            yield replace(batch, rows=rows, examples=None)
            start += count

    def _sources(self) -> Iterator[tuple[Source, Files]]:
        """Yields the source of each file of labels, and the file."""
        for file in find_label_files(self._labels.path):
            yield self._make_source(self._settings_of(file)), (file,)

    def _settings_of(self, file: str) -> ExampleGenSettings:
        return ExampleGenSettings(
            format=label_format(file),
            label=self._settings.label,
            task=self._settings.target,
            csv=self._settings.csv,
            mixed_columns=(self._labels.key,),
            # With `labels`, the Parquet source keeps a server's column that is the key. The files
            # of labels do not need this.
            labels=None,
        )

    def _survey_labels(self) -> ColumnSurvey:
        columns = []
        for source, files in self._sources():
            label_columns = source.survey(files).columns
            for name in (self._labels.key, self._settings.label):
                if name not in label_columns:
                    raise DataError(
                        f"data.labels: {files[0]} has no column {name!r}; its columns are"
                        f" {show_names(sorted(label_columns))}."
                    )
            columns.append(label_columns[self._settings.label])
        return reduce(ColumnSurvey.merge, columns)

    def _read_labels(self, kind: ColumnKind, key_kind: ColumnKind) -> _Labels:
        key, label = self._labels.key, self._settings.label
        keys, labels = [], []
        for source, files in self._sources():
            kinds = {n: column.kind for n, column in source.survey(files).columns.items()}
            if key_kind is ColumnKind.BYTES:
                kinds[key] = key_kind  # As text, a key keeps its leading zeros.
            for batch in source.read(files, kinds | {label: kind}):
                keys.append(_as_text(batch.rows.column(key), key, files[0]))
                labels.append(first_values(batch.rows.column(label)))
        typed = next((part.type for part in labels if not pa.types.is_null(part.type)), pa.int64())
        table = pa.table(
            {
                "key": pa.chunked_array(keys, pa.binary()),
                "label": pa.chunked_array([part.cast(typed) for part in labels], typed),
            }
        )
        return _last_of_each(table)


def _last_of_each(table: pa.Table) -> _Labels:
    """Returns each key once, with the last of its labels. Missing keys and labels are left out."""
    rows = table.filter(pc.and_(table["key"].is_valid(), table["label"].is_valid()))
    numbered = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by("key").aggregate([("row", "max")])["row_max"]
    unique = rows.take(last)
    return _Labels(unique["key"].combine_chunks(), unique["label"].combine_chunks())


def _as_text(column: pa.Array, key: str, file: str) -> pa.Array:
    """Returns the keys in an encoded column of any kind as text."""
    values = first_values(column)
    if pa.types.is_floating(values.type):
        raise DataError(
            f"data.labels.key: column {key!r} of {file} contains fractions, which cannot identify"
            " rows; set another column."
        )
    if pa.types.is_null(values.type) or pa.types.is_binary(values.type):
        return values.cast(pa.binary())
    return values.cast(pa.string()).cast(pa.binary())


def _check_columns(columns: dict[str, ColumnSurvey], key: str, label: str, file: str) -> None:
    if label in columns:
        raise DataError(
            f"{file} has a column {label!r}, but data.labels takes this label from other files:"
            " remove data.labels or the column."
        )
    if key not in columns:
        raise DataError(
            f"data.labels.key: {file} has no column {key!r}; its columns are"
            f" {show_names(sorted(columns))}."
        )


NO_CLASS = b"none"
"""The class that all rows get if the data has no labels."""


class OptionalLabelSource(RowsSource):
    """A source that gives all rows the class `NO_CLASS` if no row of the data has a label."""

    def survey(self, files: Files) -> Survey:
        """Returns the columns of the wrapped source, the label, and whether a row has a label."""
        survey, label = self._rows.survey(files), self._settings.label
        if self._settings.format_spec.holds_images:
            return replace(survey, has_label=True)
        if survey.columns and label not in survey.columns:
            column = ColumnSurvey(ColumnKind.BYTES, texts=1)
            return replace(survey, columns={**survey.columns, label: column})
        kinds = {name: column.kind for name, column in survey.columns.items()}
        batches = self._rows.read(files, kinds)
        return replace(survey, has_label=any(_has_labels(batch, label) for batch in batches))

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows. If no row of the data has a label, all rows get the class `NO_CLASS`."""
        label = self._settings.label
        are_labelled = isinstance(kinds, ColumnKinds) and kinds.are_labelled
        for batch in self._rows.read(files, kinds):
            yield batch if are_labelled or _has_labels(batch, label) else _with_labels(batch, label)


def _has_labels(batch: Batch, label: str) -> bool:
    names = batch.rows.schema.names
    return label in names and label_lengths(batch.rows.column(label)).max(initial=0) > 0


def _with_labels(batch: Batch, label: str) -> Batch:
    names = [name for name in batch.rows.schema.names if name != label]
    labels = single_values(pa.array([NO_CLASS] * batch.rows.num_rows, pa.binary()))
    columns = [*(batch.rows.column(name) for name in names), labels]
    return replace(batch, rows=pa.record_batch(columns, [*names, label]), examples=None)


class ParsedLabelSource(RowsSource):
    """A source that parses numeric labels in text."""

    def survey(self, files: Files) -> Survey:
        """Returns the columns of the wrapped source. If the label is text, its survey gets a sample
        of the texts.
        """
        survey, label = self._rows.survey(files), self._settings.label
        column = survey.columns.get(label)
        if column is None or column.kind is not ColumnKind.BYTES:
            return survey
        kinds = {name: survey_.kind for name, survey_ in survey.columns.items()}
        words = frozenset[str]()
        for batch in self._rows.read(files, kinds):
            values = batch.rows.column(label).flatten()
            if pa.types.is_null(values.type):
                continue
            words_of_batch = values.unique().cast(pa.binary()).to_pylist()
            words = sample_words(words | {word.decode(errors="replace") for word in words_of_batch})
        return replace(survey, columns={**survey.columns, label: replace(column, words=words)})

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows with numbers as labels."""
        number_format = kinds.label_number_format if isinstance(kinds, ColumnKinds) else None
        if number_format is None:
            yield from self._rows.read(files, kinds)
            return
        as_text = kinds.copy()
        as_text[self._settings.label] = ColumnKind.BYTES
        for batch in self._rows.read(files, as_text):
            yield self._with_numbers(batch, number_format)

    def _with_numbers(self, batch: Batch, number_format: NumberFormat) -> Batch:
        name = self._settings.label
        column = batch.rows.column(name)
        if pa.types.is_null(column.type) or label_lengths(column).max(initial=0) > 1:
            return batch  # `ChunkReport` raises the error for several values.
        encoded = first_values(column).dictionary_encode()
        values = encoded.dictionary.cast(pa.binary()).to_pylist()
        texts = [value.decode(errors="replace") for value in values]
        numbers = [
            number_format.read(text) if text.strip(SPACES) and not is_placeholder(text) else None
            for text in texts
        ]
        # `texts` holds each distinct text once, in the order of the first rows.
        for index, number in enumerate(numbers):
            if number is not None and math.isnan(number):
                row = pc.index(encoded.indices, index).as_py()
                cell = batch.first.below(row, excerpt(texts[index]))
                raise unusable_label(self._settings, cell)
        labels = pa.array(numbers, pa.float32()).take(encoded.indices)
        index = batch.rows.schema.get_field_index(name)
        rows = batch.rows.set_column(index, name, single_values(labels))
        return replace(batch, rows=rows, examples=None)
